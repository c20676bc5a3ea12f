#pragma once

#include <array>

#include "scenarios/scenario/names.hpp"
#include "sim/program/program.hpp"

// How calibration files write what they tell apart.

namespace tidemark::scenarios {

enum class CopyDirection : std::uint8_t { ToDevice, ToHost };

inline constexpr auto collective_kind_names =
    std::to_array<Named<CollectiveKind>>({{"all_reduce", CollectiveKind::AllReduce},
                                          {"all_gather", CollectiveKind::AllGather},
                                          {"reduce_scatter", CollectiveKind::ReduceScatter},
                                          {"broadcast", CollectiveKind::Broadcast},
                                          {"all_to_all", CollectiveKind::AllToAll}});
inline constexpr auto copy_direction_names =
    std::to_array<Named<CopyDirection>>({{"to_device", CopyDirection::ToDevice}, {"to_host", CopyDirection::ToHost}});
inline constexpr auto calibrated_types = std::to_array<Named<DType>>({{"bf16", DType::BF16},
                                                                      {"fp16", DType::FP16},
                                                                      {"fp32", DType::FP32},
                                                                      {"fp64", DType::FP64},
                                                                      {"int32", DType::INT32},
                                                                      {"int64", DType::INT64},
                                                                      {"int16", DType::INT16},
                                                                      {"bool", DType::BOOL},
                                                                      {"uint8", DType::UINT8},
                                                                      {"e4m3", DType::E4M3}});

}  // namespace tidemark::scenarios
