#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "parallel/frameworks/deepspeed/ongoing_events.hpp"
#include "parallel/frameworks/deepspeed/partitioned_parameters.hpp"

// PartitionedParameterCoordinator of deepspeed/runtime/zero/partitioned_param_coordinator.py: which parameters are
// gathered when a module runs, which ahead of time, and which are given up. The first pass is recorded; from the next
// on, what comes is known.

namespace tidemark::parallel::deepspeed {

enum class Direction : std::uint8_t { Forward, Backward };

class ParameterCoordinator {
 public:
  /// `owned` are the parameters of each module that are its own, in their order.
  /// Regions that run again without reentrance save parameters detached, and so the memory that they have then
  /// (torch/utils/checkpoint.py _recomputation_hook).
  enum class Checkpoints : std::uint8_t { SaveParameters, SaveTheirMemory };
  ParameterCoordinator(Session& session, const ZeroBehavior& behavior, Checkpoints checkpoints,
                       PartitionedParameters& parameters, std::vector<std::vector<std::size_t>> owned)
      : s_(session),
        behavior_(behavior),
        checkpoints_(checkpoints),
        parameters_(parameters),
        owned_(std::move(owned)) {}

  /// A forward pass begins.
  void reset_step();
  /// A module is about to run.
  void fetch(std::size_t module, Direction direction);
  /// It has run.
  void release(std::size_t module, Direction direction);
  /// release_backward_leftovers: of modules whose inputs need no gradient, nobody says that their backward pass is
  /// over.
  void release_leftovers();
  /// release_and_reset_all.
  void release_all();

 private:
  enum class Trace : std::uint8_t { Invalid, Recording, Complete };
  struct Use {
    std::size_t parameter = 0;
    std::int64_t step = 0;
  };

  void gather(std::vector<std::size_t> parameters);
  void wait(std::size_t parameter);
  void wait_for_fetched(std::size_t parameter);
  void prefetch(std::size_t module);
  void read_ahead();
  void give_up(std::size_t parameter);
  void release_run_again(std::size_t module);
  [[nodiscard]] const std::set<std::size_t>& to_release(std::size_t module);
  [[nodiscard]] std::int64_t last_fetched(std::size_t parameter) const;

  Session& s_;
  const ZeroBehavior& behavior_;
  const Checkpoints checkpoints_;
  PartitionedParameters& parameters_;
  std::vector<std::vector<std::size_t>> owned_;
  Trace trace_ = Trace::Invalid;
  std::vector<std::size_t> modules_;                 ///< __submodule_order
  std::vector<Use> uses_;                            ///< __param_order
  std::deque<Use> queue_;                            ///< of those to come
  std::map<std::size_t, std::int64_t> fetched_for_;  ///< __most_recent_step_id_param_fetched_for
  bool running_forward_ = false;                     ///< what is given up has just run
  bool ran_backward_ = false;                        ///< what was fetched last was for a backward pass
  std::int64_t step_ = 0;                            ///< modules met in this pass
  std::int64_t available_ = 0;                       ///< elements
  std::map<std::size_t, std::shared_ptr<Gathering>> in_flight_;
  OngoingEvents fetches_;                                   ///< __ongoing_fetch_events
  std::vector<std::size_t> running_backward_;               ///< __active_backward_submodules
  std::map<std::size_t, std::set<std::size_t>> run_again_;  ///< frozen ones, by the module that they are given up with
  /// What a module gives up after so many steps is decided once (lru_cache).
  std::map<std::pair<std::size_t, std::int64_t>, std::set<std::size_t>> decided_;
};

}  // namespace tidemark::parallel::deepspeed
