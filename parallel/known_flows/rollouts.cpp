#include "parallel/known_flows/tables.hpp"

// Generation beside training.

namespace tidemark::parallel {
namespace {

using enum FlowKind;

constexpr std::string_view
    engines = "what an engine of generation reads and writes is not modelled: its weights and its cache are there",
    without_graph =
        "passes for log-probabilities record no graph: what functions make for their backward passes, and variables "
        "hold until they return, is of no use";

constexpr KnownFlow of_rollouts[] = {
    {Unread, "*rollout.*", "*", "*", engines},
    {Kept, "*rollout.*", "*", "*", engines},
    {Unread, "*", "forward *", "forward *", without_graph},
    {Kept, "*", "forward *", "forward *", without_graph},
};

}  // namespace

std::span<const KnownFlow> flows_of_rollouts() { return of_rollouts; }

}  // namespace tidemark::parallel
