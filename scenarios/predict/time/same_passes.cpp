#include "scenarios/predict/time/same_passes.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "scenarios/formats/internal_error.hpp"
#include "scenarios/predict/upper_ends/worst_case_routing.hpp"
#include "sim/program/structure/leave_out.hpp"
#include "sim/program/structure/of_memory.hpp"
#include "sim/program/verify.hpp"

namespace tidemark::scenarios {
namespace {

// The role's program with as many tokens as `more` has: that of other ranks with other sizes, where there are such.
RepeatingProgram with_more_tokens(const Job& job, const Train& more, const Role& role) {
  const LoweringInput input{job.built, job.scenario.layout, more, job.runtime};
  std::optional<RepeatingProgram> its;
  if (const auto& sizes = job.sizes_of_program[job.program_of(role)]) its = sizes->as(lower_shortest(input, role));
  return its ? std::move(*its) : lower_repeating(input, role);
}

WholeMemory whole_memory(std::shared_ptr<const RepeatingProgram> program, std::vector<std::uint32_t> on_clock) {
  MemoryOutline outline = of_memory(*program);
  return {std::move(program), std::move(outline), std::move(on_clock)};
}

// Pinned memory comes back when streams have copied it.
bool pins(const Program& program) {
  return std::ranges::any_of(program.ops, [](const Op& op) {
    const auto* alloc = std::get_if<Alloc>(&op);
    return alloc != nullptr && alloc->space == MemorySpace::Pinned;
  });
}

}  // namespace

std::vector<SameMemory> roles_of_same_memory(const Job& job) {
  std::vector<SameMemory> found;
  std::map<std::tuple<std::size_t, std::int32_t, std::int32_t>, std::size_t> known;
  for (const Role& role : job.roles) {
    const std::size_t timed_as = job.program_of(role);
    std::size_t place = found.size();
    if (role.sizes) place = known.try_emplace({timed_as, role.passes, *role.sizes}, place).first->second;
    if (place == found.size()) found.emplace_back();
    SameMemory& its = found[place];
    if (its.replayed == nullptr || &job.roles[job.role_of_program[timed_as]] == &role) its.replayed = &role;
    its.ranks.insert(its.ranks.end(), role.ranks.begin(), role.ranks.end());
  }
  for (SameMemory& its : found) std::ranges::sort(its.ranks);
  return found;
}

std::vector<SamePasses> roles_of_same_passes(const Job& job, const std::vector<SameMemory>& all) {
  std::map<std::tuple<std::size_t, std::int32_t, std::int32_t, std::int32_t>, SamePasses> found;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Role& role = *all[i].replayed;
    const std::size_t timed_as = job.program_of(role);
    std::vector<std::size_t>& roles = found[{timed_as, role.passes, role.first.tensor, role.first.context}].roles;
    const bool is_simulated = &job.roles[job.role_of_program[timed_as]] == &role;
    roles.insert(is_simulated ? roles.begin() : roles.end(), i);
  }
  std::vector<SamePasses> listed;
  for (auto& [key, roles] : found) listed.push_back(std::move(roles));
  return listed;
}

PassesOfRoles::PassesOfRoles(const Job& job, const Role& first, std::size_t roles, const OnClock& clock)
    : job_(job), first_(first), clock_(clock), shown_(job, first, clock.program, clock.left_out) {
  events_ = &shown_.program() == clock.program.get() ? clock.events : RoleEvents(shown_.own_events());
  if (const std::optional<Train> train = worst_case(job.scenario)) {
    RepeatingProgram more = with_more_tokens(job, *train, first);
    worst_case_events_ = RoleEvents(events_of(more));
    worst_case_left_out_ = left_out_like_on_clock(more);
    worst_case_ = unrolled(std::move(more));
  }
  if (roles > 1) state_ = lower_state(job.lowering(), first);
  if (!state_) return;
  shared_ = SharedPasses::of(shown_.program(), *state_);
  if (worst_case_) shared_by_worst_case_ = SharedPasses::of(*worst_case_, *state_);
  const std::optional<RankEvents> alone = events_of({*state_, {}});
  shares_events_ = alone && events_.with_state(alone->state);
  shares_worst_case_events_ = alone && worst_case_events_.with_state(alone->state);
  const bool is_apart = shares_events_ && (!worst_case_ || shares_worst_case_events_);
  needs_memory_alone_ = !pins(shown_.program()) && (!job.has_cross_stream_frees || is_apart);
}

MemoryProgram PassesOfRoles::Programs::memory() const {
  const auto of_own = [this] { return whole_memory(own->own_outline(), own->on_clock()); };
  return {own->program(), events, own->left_out(), whole ? whole : of_own};
}

std::optional<MemoryProgram> PassesOfRoles::Programs::worst_case_memory() const {
  if (!worst_case) return std::nullopt;
  return MemoryProgram(*worst_case, worst_case_events, worst_case_left_out, worst_case_whole);
}

PassesOfRoles::Programs PassesOfRoles::of(const Role& role) const {
  if (!shared_ || (worst_case_ && !shared_by_worst_case_)) return lowered(role);
  std::optional<Program> own_state = lower_state(job_.lowering(), role);
  if (!own_state) return lowered(role);
  const auto state = std::make_shared<const Program>(std::move(*own_state));
  require_sound(job_.scenario.name, verify(*state));
  const auto ops = needs_memory_alone_ && !pins(*state) ? SharedPasses::Ops::OfMemory : SharedPasses::Ops::All;
  std::optional<SharedPasses::Spliced> own = shared_->in(*state, ops), worst_case_program;
  if (worst_case_) worst_case_program = shared_by_worst_case_->in(*state, ops);
  if (!own || (worst_case_ && !worst_case_program)) return lowered(role);
  Programs programs;
  programs.whole = [this, state, ops] { return whole_with(*state, ops); };
  programs.worst_case_whole = []() -> WholeMemory { throw NotKnownFromFew{}; };
  programs.own.emplace(std::move(*own), shown_);
  if (worst_case_program) {
    programs.worst_case_left_out = left_out_among(worst_case_left_out_, worst_case_program->places);
    programs.worst_case = std::move(worst_case_program->program);
  }
  const RoleEvents its(events_of({*state, {}}));
  if (shares_events_) programs.events = {its.state, events_.passes};
  if (shares_worst_case_events_) programs.worst_case_events = {its.state, worst_case_events_.passes};
  return programs;
}

MemoryProgram PassesOfRoles::memory() const {
  return {shown_.program(), events_, shown_.left_out(),
          [&] { return whole_memory(outline_of_shown(), shown_.on_clock()); }};
}

std::optional<MemoryProgram> PassesOfRoles::worst_case_memory() const {
  if (!worst_case_) return std::nullopt;
  return MemoryProgram(*worst_case_, worst_case_events_, worst_case_left_out_, worst_case_whole_of(first_));
}

const std::shared_ptr<const RepeatingProgram>& PassesOfRoles::outline_of_shown() const {
  return shown_.own_outline() ? shown_.own_outline() : clock_.outline;
}

// Of memory alone: the passes around another state, with all that repeats. Ops are counted as in the short program.
WholeMemory PassesOfRoles::whole_with(const Program& state, SharedPasses::Ops ops) const {
  const RepeatingProgram& outline = *outline_of_shown();
  if (ops != SharedPasses::Ops::OfMemory) throw NotKnownFromFew{};
  std::call_once(whole_is_split_, [&] { shared_by_whole_ = SharedPasses::of(outline.rolled, *state_); });
  std::optional<SharedPasses::Spliced> its;
  if (shared_by_whole_) its = shared_by_whole_->in(state, ops);
  if (!its) throw NotKnownFromFew{};
  // What repeats is found by numbers that follow the order in which buffers are made.
  std::vector<BufferId> numbers(static_cast<std::size_t>(its->program.buffers));
  std::int32_t made = 0;
  for (Op& op : its->program.ops) {
    if (auto* alloc = std::get_if<Alloc>(&op)) alloc->buffer = numbers[alloc->buffer.index()] = BufferId{made++};
    if (auto* free = std::get_if<Free>(&op)) free->buffer = numbers[free->buffer.index()];
    if (auto* use = std::get_if<CrossStreamUse>(&op)) use->buffer = numbers[use->buffer.index()];
  }
  its->program.buffers = made;
  std::vector<Repeat> repeats = repeats_among(outline.repeats, its->places);
  std::vector<std::uint32_t> places = written_out(its->places, repeats, outline.repeats);
  if (const std::vector<std::uint32_t> of_shown = shown_.on_clock(); !of_shown.empty())
    for (std::uint32_t& place : places) place = place < of_shown.size() ? of_shown[place] : of_shown.back() + 1;
  return {nullptr, {{std::move(its->program), std::move(repeats)}, {}}, std::move(places)};
}

std::vector<LeftOut> PassesOfRoles::left_out_like_on_clock(RepeatingProgram& program) const {
  std::optional<std::vector<LeftOut>> its = leave_out_like(program, clock_.left_out);
  if (!its) throw NotKnownFromFew{};
  return std::move(*its);
}

// Lowered again once it is asked for.
std::function<WholeMemory()> PassesOfRoles::worst_case_whole_of(const Role& role) const {
  return [this, &role] {
    const auto its = std::make_shared<const RepeatingProgram>(with_more_tokens(job_, *worst_case(job_.scenario), role));
    return WholeMemory{its, of_memory(*its), {}, false};
  };
}

PassesOfRoles::Programs PassesOfRoles::lowered(const Role& role) const {
  Programs programs;
  programs.worst_case_whole = worst_case_whole_of(role);
  programs.own.emplace(job_, role, clock_.program, clock_.left_out);
  programs.events = RoleEvents(programs.own->own_events());
  if (const std::optional<Train> train = worst_case(job_.scenario)) {
    RepeatingProgram more = lower_repeating({job_.built, job_.scenario.layout, *train, job_.runtime}, role);
    programs.worst_case_events = RoleEvents(events_of(more));
    programs.worst_case_left_out = left_out_like_on_clock(more);
    programs.worst_case = unrolled(std::move(more));
  }
  return programs;
}

}  // namespace tidemark::scenarios
