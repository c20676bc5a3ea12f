#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/frameworks/deepspeed/zero_parameters.hpp"

// Parameters of which each rank holds a part, and which are gathered while modules run
// (deepspeed/runtime/zero/partition_parameters.py).

namespace tidemark::parallel::deepspeed {

/// The buffer in which parameters are drawn, the rank's part of each after the other, padded.
inline constexpr std::string_view drawn_together = "zero.partitioned_parameters";

/// ZeroParamStatus.
enum class Availability : std::uint8_t { NotAvailable, InFlight, Available };

struct PartitionedParameter {
  std::string name;
  std::shared_ptr<Leaf> leaf;           ///< what modules read; its value has no memory unless it is gathered
  Tensor partition;                     ///< ds_tensor
  std::int64_t elements = 0, each = 0;  ///< of the whole; of every rank's part, the last of which may be padded
  Availability status = Availability::NotAvailable;
  bool persists = false;         ///< ds_persist: stays gathered between steps
  std::set<std::size_t> active;  ///< modules that are running
};

/// Parameters that are gathered by one call, and wait in one buffer until the last of them is asked for.
struct Gathering {
  std::vector<std::size_t> parameters;
  Tensor flat;  ///< rank by rank; none where the only one was gathered to where it stays
  bool complete = false;
};

/// Where the parts of parameters lie, if not on the device.
struct PartsOnHost {
  std::optional<MemorySpace> space;
  std::int64_t untied = 0;  ///< elements of a parameter that goes once all are there
};

/// All parameters of a model, and how they come and go.
class PartitionedParameters {
 public:
  /// What is gathered is made and copied on `stream`.
  PartitionedParameters(Session& session, const DataGroup& group, StreamId stream, NamedParameters parameters,
                        const PartsOnHost& host);

  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] PartitionedParameter& operator[](std::size_t p) { return all_[p]; }
  [[nodiscard]] const PartitionedParameter& operator[](std::size_t p) const { return all_[p]; }
  /// The rank's parts of all, one after another.
  [[nodiscard]] const Tensor& buffer() const { return buffer_; }
  /// How many of a parameter's elements are in the rank's part of it.
  [[nodiscard]] std::int64_t held(std::size_t p) const;
  [[nodiscard]] const DataGroup& group() const { return group_; }
  [[nodiscard]] StreamId stream() const { return stream_; }

  /// all_gather_coalesced, of parameters in their order, none of which is available.
  [[nodiscard]] std::shared_ptr<Gathering> gather(std::vector<std::size_t> parameters);
  /// AllGatherCoalescedHandle.wait.
  void wait(Gathering& gathering);
  /// _all_gather, on the compute stream, each to where it stays.
  void gather_now(std::span<const std::size_t> parameters);
  /// free_param. Where tensors that were saved share its memory, that is handed back.
  enum class Saved : std::uint8_t { AsItIs, ItsMemory };
  Tensor free(std::size_t p, Saved saved = Saved::AsItIs);

 private:
  [[nodiscard]] bool alone() const { return group_.ranks == 1; }
  /// The only rank's part of a parameter is where it is used.
  [[nodiscard]] bool stays() const { return alone() && !offload_; }
  /// A rank's part, on the device.
  [[nodiscard]] Tensor on_device(std::size_t p);
  void gather_to_place(std::size_t p);
  void place(std::size_t p, Tensor whole);

  Session& s_;
  const DataGroup group_;
  const StreamId stream_;
  const std::optional<MemorySpace> offload_;
  std::vector<PartitionedParameter> all_;
  Tensor buffer_;
};

}  // namespace tidemark::parallel::deepspeed
