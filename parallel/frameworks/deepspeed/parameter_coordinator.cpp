#include "parallel/frameworks/deepspeed/parameter_coordinator.hpp"

#include <algorithm>
#include <limits>

namespace tidemark::parallel::deepspeed {

void ParameterCoordinator::reset_step() {
  for (const auto& [parameter, gathering] : std::exchange(in_flight_, {})) {
    parameters_.wait(*gathering);
    give_up(parameter);
  }
  if (trace_ == Trace::Recording) {
    for (std::size_t step = 0; step < modules_.size(); ++step)
      for (const std::size_t p : owned_[modules_[step]]) uses_.push_back({p, static_cast<std::int64_t>(step)});
    trace_ = Trace::Complete;
  } else if (trace_ == Trace::Invalid) {
    trace_ = Trace::Recording;
  }
  queue_.assign(uses_.begin(), uses_.end());
  fetched_for_.clear();
  step_ = 0;
  available_ = 0;
}

std::int64_t ParameterCoordinator::last_fetched(std::size_t parameter) const {
  const auto found = fetched_for_.find(parameter);
  return found == fetched_for_.end() ? std::numeric_limits<std::int64_t>::min() : found->second;
}

// __all_gather_params.
void ParameterCoordinator::gather(std::vector<std::size_t> parameters) {
  std::erase_if(parameters, [&](std::size_t p) { return parameters_[p].status != Availability::NotAvailable; });
  if (parameters.empty()) return;
  std::sort(parameters.begin(), parameters.end());
  for (const std::size_t p : parameters) available_ += parameters_[p].elements;
  // __all_gather_params_: those of which neighbours have all by themselves first.
  const auto others = std::stable_partition(parameters.begin(), parameters.end(),
                                            [&](std::size_t p) { return parameters_[p].secondary.defined(); });
  for (std::vector<std::size_t> together :
       {std::vector(parameters.begin(), others), std::vector(others, parameters.end())}) {
    if (together.empty()) continue;
    for (const std::shared_ptr<Gathering>& gathering : parameters_.gather(together))
      for (const std::size_t p : gathering->parameters) in_flight_[p] = gathering;
  }
  parameters_.release_persistent(parameters);
}

void ParameterCoordinator::wait(std::size_t parameter) {
  const auto found = in_flight_.find(parameter);
  if (found == in_flight_.end()) return;
  const std::shared_ptr<Gathering> gathering = std::move(found->second);
  in_flight_.erase(found);
  parameters_.wait(*gathering);
}

// Of a parameter that a module needs: the host is ahead of gathers by two.
void ParameterCoordinator::wait_for_fetched(std::size_t parameter) {
  if (!in_flight_.contains(parameter)) return;
  fetches_.make_room(s_.process);
  wait(parameter);
  fetches_.add(s_.process, parameters_.stream());
}

// fetch_sub_module.
void ParameterCoordinator::fetch(std::size_t module, Direction direction) {
  const NoGrad no_grad(s_);
  if (trace_ == Trace::Recording) modules_.push_back(module);
  if (direction == Direction::Backward && std::ranges::find(running_backward_, module) == running_backward_.end())
    running_backward_.push_back(module);
  gather(owned_[module]);
  // A region that runs again with reentrance has a backward pass of its own, and hooks of adapters queue an epilogue
  // that comes when that is over (queue_post_backward_callback).
  const bool again = direction == Direction::Forward && s_.engine != nullptr;
  if (again && checkpoints_ == Checkpoints::SaveParameters && !run_again_.empty() && ran_backward_) release_leftovers();
  ran_backward_ = direction == Direction::Backward;
  // update_recompute_parameters: of what runs again, what is frozen goes with the module whose backward pass began
  // last.
  const bool runs_again = again && !running_backward_.empty();
  for (const std::size_t p : owned_[module]) {
    parameters_[p].active.insert(module);
    if (runs_again && !parameters_[p].trained) {
      parameters_[p].active.insert(running_backward_.back());
      run_again_[running_backward_.back()].insert(p);
    }
    wait_for_fetched(p);
  }
  if (parameters_.stream() != Process::compute_stream) s_.process.join(s_.process.record(parameters_.stream()));
  if (trace_ == Trace::Complete) prefetch(module);
  ++step_;
}

// What is used now leaves the queue, and what comes next is gathered, as far as the limits allow.
void ParameterCoordinator::prefetch(std::size_t module) {
  const auto not_fetched =
      std::ranges::count_if(owned_[module], [&](std::size_t p) { return last_fetched(p) < step_; });
  std::set<std::size_t> met;
  while (!queue_.empty() && static_cast<std::ptrdiff_t>(met.size()) < not_fetched) {
    fetched_for_[queue_.front().parameter] = queue_.front().step;
    met.insert(queue_.front().parameter);
    queue_.pop_front();
  }
  if (behavior_.prefetch_bucket == 0) return;
  const std::int64_t most = std::min(behavior_.max_live - available_, behavior_.prefetch_bucket);
  std::vector<std::size_t> ahead;
  std::int64_t elements = 0;
  while (!queue_.empty() && elements < most) {
    const Use next = queue_.front();
    if (parameters_.is_in_file(next.parameter)) break;
    queue_.pop_front();
    fetched_for_[next.parameter] = std::max(last_fetched(next.parameter), next.step);
    if (parameters_[next.parameter].status != Availability::NotAvailable) continue;
    if (std::ranges::find(ahead, next.parameter) != ahead.end()) continue;
    ahead.push_back(next.parameter);
    elements += parameters_[next.parameter].elements;
  }
  gather(std::move(ahead));
  if (parameters_.swaps()) read_ahead();
}

// __prefetch_nvme_param_partitions: of twice as many elements as are in flight, as buffers allow.
void ParameterCoordinator::read_ahead() {
  std::int64_t in_flight = 0, met = 0;
  for (const auto& [parameter, gathering] : in_flight_) in_flight += parameters_[parameter].elements;
  std::vector<std::size_t> going;
  for (const Use& use : queue_) {
    if (met > 2 * in_flight || going.size() >= parameters_.available_buffers()) break;
    const bool listed = std::ranges::find(going, use.parameter) != going.end();
    if (parameters_.is_in_file(use.parameter) && !listed) going.push_back(use.parameter);
    met += parameters_[use.parameter].elements;
  }
  if (!going.empty()) parameters_.read_ahead(going);
}

// __params_to_release: not what stays, what was fetched for a later use, and what is used again soon.
const std::set<std::size_t>& ParameterCoordinator::to_release(std::size_t module) {
  const auto [found, is_new] = decided_.try_emplace({module, step_});
  std::set<std::size_t>& going = found->second;
  if (!is_new) return going;
  for (const std::size_t p : owned_[module])
    if (!parameters_[p].persists && last_fetched(p) <= step_) going.insert(p);
  std::int64_t met = 0;
  for (auto step = static_cast<std::size_t>(step_); step < modules_.size() && met < behavior_.max_reuse; ++step)
    for (const std::size_t p : owned_[modules_[step]]) {
      going.erase(p);
      met += parameters_[p].elements;
    }
  return going;
}

// release_sub_module.
void ParameterCoordinator::release(std::size_t module, Direction direction) {
  const bool known = trace_ == Trace::Complete;
  running_forward_ = direction == Direction::Forward;
  if (direction == Direction::Backward) std::erase(running_backward_, module);
  const std::set<std::size_t>* const going = known ? &to_release(module) : nullptr;
  for (const std::size_t p : owned_[module]) {
    parameters_[p].active.erase(module);
    if (going == nullptr || going->contains(p)) give_up(p);
  }
  if (direction == Direction::Backward) release_run_again(module);
  running_forward_ = false;
}

// __release_param.
void ParameterCoordinator::give_up(std::size_t parameter) {
  const PartitionedParameter& its = parameters_[parameter];
  if (its.status != Availability::Available || !its.active.empty()) return;
  using Saved = PartitionedParameters::Saved;
  const bool runs_again = running_forward_ && s_.engine != nullptr;
  const bool detached = runs_again && checkpoints_ == Checkpoints::SaveTheirMemory;
  parameters_.free(parameter, detached ? Saved::Memory : Saved::Parameter);
  available_ -= its.elements;
}

// ds_recompute_parameters.
void ParameterCoordinator::release_run_again(std::size_t module) {
  const auto its = run_again_.extract(module);
  if (its.empty()) return;
  for (const std::size_t p : its.mapped()) {
    parameters_[p].active.erase(module);
    if (!parameters_[p].persists) give_up(p);
  }
}

void ParameterCoordinator::release_leftovers() {
  while (!running_backward_.empty()) {
    const std::size_t module = running_backward_.back();
    running_backward_.pop_back();
    for (const std::size_t p : owned_[module]) {
      parameters_[p].active.erase(module);
      if (!parameters_[p].persists) give_up(p);
    }
    release_run_again(module);
  }
}

void ParameterCoordinator::release_all() {
  run_again_.clear();
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    wait(p);
    parameters_[p].active.clear();
    give_up(p);
  }
}

}  // namespace tidemark::parallel::deepspeed
