#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/torch/session.hpp"

namespace tidemark::parallel::megatron {

class Worker;

/// core/pipeline_parallel/fine_grained_activation_offload.py: what named modules save goes to pinned memory of the host
/// on one stream, module by module, and comes back on another one, a module for each whose backward pass ends.
class ModuleOffload {
 public:
  /// `chunks`: of the model that the rank holds.
  ModuleOffload(Session& session, const ModuleOffloadBehavior& behavior, std::size_t chunks);
  ModuleOffload(const ModuleOffload&) = delete;
  ModuleOffload& operator=(const ModuleOffload&) = delete;

  /// A micro-batch begins to pass through that chunk.
  void begin_forward(std::size_t chunk);
  /// All of a step's passes are over.
  void end_step();

 private:
  friend class OffloadedRegion;
  friend class SavedInGroup;

  /// What a node saved: on the device, or what there is of it on the host.
  struct Entry {
    Tensor on_device, on_host;
    LabelId label;
  };
  /// What one module saves in one pass.
  struct Group {
    OffloadedModule module{};
    bool goes = true;  ///< in the first step and, if nothing says otherwise then, in later ones
    std::vector<Entry> saved;
    EventId gone;  ///< its copies to the host
    EventId back;  ///< its copies to the device, until the compute stream has waited for them
    Bytes bytes;   ///< that went in the first step
  };
  /// One pass of a micro-batch through a chunk of the model. They come in the same order in every step.
  struct Pass {
    std::deque<Group> groups;  ///< made in the first step
    std::size_t begun = 0;
    std::vector<Group*> to_send, to_fetch;
    std::map<OffloadedModule, std::deque<EventId>> in_flight;
    [[nodiscard]] Group* later(OffloadedModule module);  ///< that has not begun
  };
  /// Pinned tensors of one shape and type, which are used again.
  struct Room {
    std::vector<Tensor> all;
    std::deque<std::size_t> free;
  };

  [[nodiscard]] Group& begin(Pass& pass, OffloadedModule module);
  void end(Pass& pass, Group& group, std::initializer_list<const Tensor*> released);
  void begin_backward(Pass& pass, Group& group);
  void end_backward(Pass& pass);

  void flush();
  [[nodiscard]] bool sends(Pass& pass, const Group& group);
  [[nodiscard]] bool large(const Tensor& tensor) const;
  [[nodiscard]] Pass* next_backward(std::optional<OffloadedModule> module);
  /// A group has it, which stays on the device.
  [[nodiscard]] static bool held(const Pass& pass, const Tensor& tensor);
  [[nodiscard]] Tensor room_for(const Tensor& tensor, OffloadedModule module, LabelId label);
  void give_back(const Tensor& on_host, OffloadedModule module, EventId read);
  void send(Group& group);
  void fetch(Pass& pass);
  void await(Group& group);
  [[nodiscard]] Tensor pop(Group& group, std::size_t place);
  void end_first_step();

  Session& s_;
  ModuleOffloadBehavior behavior_;
  bool first_step_ = true;
  std::deque<Pass> passes_;                  ///< of a step
  std::size_t forward_ = 0;                  ///< passes that have begun
  std::vector<std::vector<Pass*>> waiting_;  ///< by chunk, in the first step: whose backward passes' turn is not known
  std::vector<Pass*> backward_;              ///< in the order of their backward passes
  std::size_t backward_begun_ = 0;
  Pass* backward_now_ = nullptr;
  using Kind = std::pair<std::vector<std::int64_t>, DType>;
  std::map<Kind, Room> rooms_;
  std::map<BufferId, EventId> read_;  ///< the last copy from a pinned tensor
};

/// A module while it runs, whose group of saved tensors goes to the host if it is one of those that do.
class OffloadedRegion {
 public:
  /// From here on what is saved is the module's, which reads `input`.
  OffloadedRegion(Worker& w, OffloadedModule module, Tensor& input);
  [[nodiscard]] bool offloads() const { return offload_ != nullptr; }
  /// The module has run, and gave that.
  void close(const Tensor& output);
  /// What it saved goes, if it goes, once `output` is there; others need those no more whose memory is released.
  [[nodiscard]] Tensor commit(Tensor output, std::initializer_list<const Tensor*> released);

 private:
  Worker& w_;
  ModuleOffload* offload_ = nullptr;  ///< null: it stays
  ModuleOffload::Pass* pass_ = nullptr;
  ModuleOffload::Group* group_ = nullptr;
  torch::Ref<torch::Node> begin_;
  std::optional<torch::SavedTensorsHooks> hooks_;
};

}  // namespace tidemark::parallel::megatron
