#include "parallel/frameworks/megatron/module_offload.hpp"

#include <algorithm>
#include <iterator>
#include <ranges>

#include "parallel/frameworks/megatron/worker.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::megatron {

using torch::OnHost;
using torch::OnStream;
using torch::with;

namespace {

constexpr StreamId to_host{10}, from_host{11};  // d2h_stream, h2d_stream

// Where sizes change with what routers choose, pinned memory is asked for each time.
bool has_room_of_its_own(OffloadedModule module) {
  return module != OffloadedModule::ExpertFc1 && module != OffloadedModule::ExpertActivation;
}

}  // namespace

/// What a node holds in place of a tensor of a group.
class SavedInGroup final : public torch::PackedTensor {
 public:
  SavedInGroup(ModuleOffload& offload, ModuleOffload::Group& group, std::size_t place)
      : offload_(offload), group_(group), place_(place) {}
  Tensor unpack(Session&) override { return offload_.pop(group_, place_); }

 private:
  ModuleOffload& offload_;
  ModuleOffload::Group& group_;
  std::size_t place_;
};

// ---- regions -------------------------------------------------------------------------------------------------------

OffloadedRegion::OffloadedRegion(Worker& w, OffloadedModule module, Tensor& input) : w_(w) {
  if (w.module_offload == nullptr || !w.runtime.module_offload.modules.has(module)) return;
  offload_ = w.module_offload;
  pass_ = &offload_->passes_[offload_->forward_ - 1];
  group_ = &offload_->begin(*pass_, module);
  begin_ = w.node({}, {&input});
  if (begin_) {
    begin_->apply = [offload = offload_, pass = pass_](Gradients& gradients) {
      offload->end_backward(*pass);
      return Gradients{std::move(gradients.front())};
    };
    input = with(std::move(input), begin_);
  }
  // tensor_push
  hooks_.emplace(w.session,
                 [&offload = *offload_, &group = *group_,
                  &s = w.session](const Tensor& tensor) -> std::unique_ptr<torch::PackedTensor> {
                   if (s.process.allocation(tensor.buffer()).category == Category::Parameters) return nullptr;
                   s.keep_saved(tensor);
                   group.saved.push_back({tensor.detached(), {}, s.process.allocation(tensor.buffer()).label});
                   return std::make_unique<SavedInGroup>(offload, group, group.saved.size() - 1);
                 });
}

void OffloadedRegion::close(const Tensor& output) {
  if (!hooks_) return;
  hooks_.reset();
  if (begin_ && output.requires_grad()) begin_->sum = output.gradient.node->sum;
}

Tensor OffloadedRegion::commit(Tensor output, std::initializer_list<const Tensor*> released) {
  if (offload_ == nullptr) return output;
  close(output);
  const Ref<Node> node = w_.node({}, {&output});
  offload_->end(*pass_, *group_, released);
  if (!node) return output;
  node->apply = [offload = offload_, pass = pass_, group = group_](Gradients& gradients) {
    offload->begin_backward(*pass, *group);
    return Gradients{std::move(gradients.front())};
  };
  return with(std::move(output), node);
}

// ---- passes --------------------------------------------------------------------------------------------------------

ModuleOffload::ModuleOffload(Session& session, const ModuleOffloadBehavior& behavior, std::size_t chunks)
    : s_(session), behavior_(behavior), waiting_(chunks) {
  // What comes back is in memory of its stream, which waits for the compute stream whenever a group's turn is over.
  s_.process.order_frees(from_host);
}

// init_model_chunk_offload_handler
void ModuleOffload::begin_forward(std::size_t chunk) {
  ++forward_;
  if (!first_step_) return ensure(forward_ <= passes_.size(), "all steps have the same passes");
  const bool last = chunk + 1 == waiting_.size();
  if (last) flush();
  Pass& pass = passes_.emplace_back();
  waiting_[chunk].push_back(&pass);
  if (!last) return;
  backward_.push_back(&pass);
  flush();
}

void ModuleOffload::flush() {
  if (waiting_.front().size() != waiting_.back().size()) return;
  waiting_.back().clear();
  for (std::vector<Pass*>& of_chunk : std::views::reverse(waiting_)) {
    backward_.insert(backward_.end(), of_chunk.begin(), of_chunk.end());
    of_chunk.clear();
  }
}

ModuleOffload::Group* ModuleOffload::Pass::later(OffloadedModule module) {
  const auto found = std::find_if(groups.begin() + static_cast<std::ptrdiff_t>(begun), groups.end(),
                                  [&](const Group& group) { return group.module == module; });
  return found == groups.end() ? nullptr : &*found;
}

// on_group_start_forward
ModuleOffload::Group& ModuleOffload::begin(Pass& pass, OffloadedModule module) {
  if (first_step_)
    pass.groups.emplace_back().module = module;
  else
    while (pass.groups[pass.begun].module != module) ++pass.begun;
  Group& group = pass.groups[pass.begun++];
  group.saved.clear();
  group.gone = group.back = {};
  pass.to_send.push_back(&group);
  return group;
}

// on_group_commit_forward. Before core 0.19 the group that began last goes, and one that stays is not struck off.
void ModuleOffload::end(Pass& pass, Group& group, std::initializer_list<const Tensor*> released) {
  s_.process.wait(to_host, s_.process.record(s_.stream()));
  const auto of_this_name = [&](const Group* its) { return its->module == group.module; };
  const auto place =
      behavior_.by_name ? std::ranges::find_if(pass.to_send, of_this_name) : std::prev(pass.to_send.end());
  Group& next = **place;
  const bool goes = sends(pass, next);
  if (goes || behavior_.by_name) pass.to_send.erase(place);
  if (!goes) return;
  pass.to_fetch.push_back(&next);
  send(next);
  if (behavior_.in_flight) {
    std::deque<EventId>& sent = pass.in_flight[next.module];
    sent.push_back(next.gone);
    for (; sent.size() > static_cast<std::size_t>(*behavior_.in_flight); sent.pop_front())
      s_.process.wait(s_.stream(), sent.front());
  }
  for (const Tensor* tensor : released)
    if (large(*tensor) && !held(pass, *tensor)) s_.discard(*tensor);
}

// should_bulk_offload: of a pass that runs backward next, the last group of each module stays.
bool ModuleOffload::sends(Pass& pass, const Group& group) {
  if (first_step_) return true;
  if (!group.goes) return false;
  return next_backward(group.module) != &pass || pass.later(group.module) != nullptr;
}

// front_backward_chunk
ModuleOffload::Pass* ModuleOffload::next_backward(std::optional<OffloadedModule> module) {
  for (std::size_t i = backward_begun_; i < backward_.size(); ++i) {
    const std::deque<Group>& groups = backward_[i]->groups;
    if (std::ranges::any_of(groups, [&](const Group& group) { return !module || group.module == *module; }))
      return backward_[i];
  }
  return nullptr;
}

// on_group_commit_backward
void ModuleOffload::begin_backward(Pass& pass, Group& group) {
  if (backward_now_ != &pass) {
    const auto its = std::ranges::find(backward_, &pass);
    ensure(its != backward_.end(), "a backward pass follows its forward pass");
    backward_begun_ = static_cast<std::size_t>(its - backward_.begin()) + 1;
    backward_now_ = &pass;
  }
  await(group);
}

// on_group_start_backward
void ModuleOffload::end_backward(Pass& pass) {
  s_.process.wait(from_host, s_.process.record(s_.stream()));
  if (!pass.to_fetch.empty()) return fetch(pass);
  Pass* const next = next_backward({});
  if (next != nullptr && next->begun == next->groups.size() && !next->to_fetch.empty()) fetch(*next);
}

// reset
void ModuleOffload::end_step() {
  if (first_step_) end_first_step();
  first_step_ = false;
  forward_ = backward_begun_ = 0;
  backward_now_ = nullptr;
  for (Pass& pass : passes_) {
    pass.begun = 0;
    pass.to_send.clear(), pass.to_fetch.clear(), pass.in_flight.clear();
  }
  for (auto& [kind, room] : rooms_) {
    room.free.resize(room.all.size());
    for (std::size_t i = 0; i < room.all.size(); ++i) room.free[i] = i;
  }
}

// post_warmup_callback: of the pass that runs backward first, the last group of each module stays. Of each pass, so
// many of the last that are left.
void ModuleOffload::end_first_step() {
  std::size_t stay = 0;
  std::vector<Group*> last;  // of each module, in the order in which modules are met
  for (Pass* pass : std::views::reverse(backward_)) {
    std::vector<OffloadedModule> modules;
    for (Group& group : pass->groups) {
      if (std::ranges::find(modules, group.module) == modules.end()) modules.push_back(group.module);
      const auto its = std::ranges::find(last, group.module, [](const Group* of) { return of->module; });
      if (its == last.end())
        last.push_back(&group);
      else
        *its = &group;
    }
    stay = std::max(stay, modules.size());
  }
  for (std::size_t i = 0; i < stay; ++i) last[i]->goes = false;
  for (Pass* pass : backward_) {
    std::vector<Group*> left;
    for (Group& group : pass->groups)
      if (group.goes && group.bytes > Bytes{}) left.push_back(&group);
    auto others = static_cast<std::size_t>(static_cast<double>(left.size()) * (1 - behavior_.fraction));
    for (Group* group : std::views::reverse(left))
      if (others > 0) group->goes = false, --others;
  }
}

// ---- copies --------------------------------------------------------------------------------------------------------

bool ModuleOffload::large(const Tensor& tensor) const { return tensor.elements() >= behavior_.smallest; }

bool ModuleOffload::held(const Pass& pass, const Tensor& tensor) {
  for (const Group& group : pass.groups)
    for (const Entry& entry : group.saved)
      if (entry.on_device.defined() && entry.on_device.storage == tensor.storage) return true;
  return false;
}

// GPUTensorPool: the tensor that was given back first is taken first.
Tensor ModuleOffload::room_for(const Tensor& tensor, OffloadedModule module, LabelId label) {
  const OnHost host(s_, MemorySpace::Pinned);
  if (!has_room_of_its_own(module)) return s_.empty(tensor.sizes, tensor.dtype, label, Category::SavedActivations);
  Room& room = rooms_[{{tensor.sizes.begin(), tensor.sizes.end()}, tensor.dtype}];
  if (room.free.empty()) {
    room.all.push_back(
        s_.empty(tensor.sizes, tensor.dtype, s_.process.label("cpu_tensor_pool"), Category::OffloadStaging));
    s_.process.keep(room.all.back().buffer());
    return room.all.back();
  }
  const Tensor& found = room.all[room.free.front()];
  room.free.pop_front();
  s_.process.wait(to_host, std::exchange(read_[found.buffer()], {}));
  return found;
}

void ModuleOffload::give_back(const Tensor& on_host, OffloadedModule module, EventId read) {
  if (!has_room_of_its_own(module)) return;
  Room& room = rooms_[{{on_host.sizes.begin(), on_host.sizes.end()}, on_host.dtype}];
  const auto its = std::ranges::find(room.all, on_host.buffer(), &Tensor::buffer);
  room.free.push_back(static_cast<std::size_t>(its - room.all.begin()));
  read_[on_host.buffer()] = read;
}

// bulk_offload_group
void ModuleOffload::send(Group& group) {
  const OnStream on(s_, to_host);
  for (Entry& entry : group.saved) {
    const Tensor tensor = entry.on_device;
    if (!large(tensor)) continue;
    Tensor whole = tensor;
    if (!tensor.contiguous()) {
      whole = s_.empty(tensor.sizes, tensor.dtype, entry.label, Category::OffloadStaging);
      s_.launch(Operation::Copy, {tensor}, {whole});
    }
    entry.on_host = room_for(whole, group.module, entry.label);
    s_.copy(whole, entry.on_host);
    s_.record_stream(tensor, to_host);
    entry.on_device = {};
    if (first_step_) group.bytes += tensor.bytes();
  }
  group.gone = s_.process.record(to_host);
}

// bulk_reload_group: the last group that went.
void ModuleOffload::fetch(Pass& pass) {
  Group& group = *pass.to_fetch.back();
  pass.to_fetch.pop_back();
  s_.process.wait(from_host, group.gone);
  const OnStream on(s_, from_host);
  std::vector<Tensor> read;
  for (Entry& entry : group.saved) {
    if (!entry.on_host.defined()) continue;
    entry.on_device = s_.empty(entry.on_host.sizes, entry.on_host.dtype, entry.label, Category::SavedActivations);
    s_.copy(entry.on_host, entry.on_device);
    if (has_room_of_its_own(group.module)) read.push_back(entry.on_host);
    entry.on_host = {};
  }
  group.back = s_.process.record(from_host);
  for (const Tensor& tensor : read) give_back(tensor, group.module, group.back);
}

void ModuleOffload::await(Group& group) { s_.process.wait(s_.stream(), std::exchange(group.back, {})); }

// tensor_pop. What has not been fetched is copied on the compute stream, which the release lets begin before the copy
// to the host is over, and compute before what was fetched in the meantime is there: in the first step only, when no
// group stays on the device. Here it waits.
Tensor ModuleOffload::pop(Group& group, std::size_t place) {
  await(group);
  Entry& entry = group.saved[place];
  if (entry.on_device.defined()) return std::exchange(entry.on_device, {});
  ensure(entry.on_host.defined(), "a saved tensor is asked for once");
  s_.process.wait(s_.stream(), group.gone);
  const Tensor on_host = std::exchange(entry.on_host, {});
  Tensor made = s_.empty(on_host.sizes, on_host.dtype, entry.label, Category::SavedActivations);
  s_.copy(on_host, made);
  give_back(on_host, group.module, s_.process.record(s_.stream()));
  return made;
}

}  // namespace tidemark::parallel::megatron
