#pragma once

#include <string>
#include <vector>

#include "sim/program/structure/repeats.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::sim {

/// What is wrong with one program, one line a finding, none when it may run: every buffer allocated once and before it
/// is used, never used or named after its free, freed once; sizes positive; waits after records; no stream still using
/// what is freed; names bound before they are unbound; communicators created once and before they are used; kernels and
/// communicators on memory of the device, copies between it and the host's; uneven collectives with one row a matrix.
[[nodiscard]] std::vector<std::string> verify(const Program& program);

/// The same for every program of a workload, and between ranks: the same collectives in the same order on every member
/// of a group, what each member of an uneven one sends to a place what is received there from it, and each message that
/// one rank sends received by its peer, in order and of equal size.
[[nodiscard]] std::vector<std::string> verify(const Workload& workload);

/// The same of programs that lie elsewhere.
[[nodiscard]] std::vector<std::string> verify(const std::vector<const Program*>& programs,
                                              const std::vector<std::int32_t>& program_of_rank,
                                              const std::vector<Communicator>& communicators);

/// The same of a job with as few micro-batches as all its programs, which are held, show: whatever any rank does at
/// all, it does there, and ranks meet as they do in the whole.
[[nodiscard]] std::vector<std::string> verify(const RepeatingWorkload& workload);

}  // namespace tidemark::sim
