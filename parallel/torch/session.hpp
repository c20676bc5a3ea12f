#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/runtime/runtime.hpp"
#include "parallel/torch/autograd.hpp"
#include "parallel/torch/labels.hpp"
#include "parallel/torch/process.hpp"
#include "parallel/torch/record.hpp"
#include "parallel/torch/tensor.hpp"
#include "parallel/torch/training_state.hpp"

namespace tidemark::parallel::torch {

/// What a parameter's own tensor is called after its module.
inline constexpr std::string_view trained_parameter = "parameter";

/// What a node holds in place of a tensor that it saved.
class PackedTensor {
 public:
  virtual ~PackedTensor() = default;
  virtual Tensor unpack(Session& session) = 0;
};
/// The pack hook of torch.autograd.graph.saved_tensors_hooks; null where the tensor is saved as it is.
using PackHook = std::function<std::unique_ptr<PackedTensor>(const Tensor&)>;

/// Memory that a kernel works in besides its operands, where it needs any.
class Scratch {
 public:
  Scratch() = default;
  Scratch(BufferId one) { add(one); }        // NOLINT: a workspace is scratch memory
  Scratch(const Tensor& one) { add(one); }   // NOLINT
  Scratch(const std::vector<Tensor>& all) {  // NOLINT
    for (const Tensor& t : all) add(t);
  }

  [[nodiscard]] std::span<const BufferId> buffers() const { return {buffers_.begin(), buffers_.size()}; }

 private:
  void add(BufferId buffer) {
    if (buffer.valid()) buffers_.emplace_back(buffer);
  }
  void add(const Tensor& tensor) {
    if (tensor.defined()) add(tensor.buffer());
  }

  SmallVector<BufferId, 2> buffers_;
};

/// Operations that modes below autograd tell apart.
enum class Dispatched : std::uint8_t {
  MatrixProduct,
  AddedProduct,
  FusedAttention,
  ReduceScatter,
  AllToAll,
  CopyToHost
};

/// A mode below autograd (torch.utils._python_dispatch.TorchDispatchMode): sees what operations make, or has it
/// already.
class DispatchMode {
 public:
  virtual ~DispatchMode() = default;
  /// Whether the results are there, so that the operation need not run.
  virtual bool recalls(Dispatched what, std::span<Tensor> results) = 0;
  virtual void made(Dispatched what, std::span<const Tensor> results) = 0;
};

class SavedTensor final : public Counted {
 public:
  explicit SavedTensor(Pool<SavedTensor>& home) : home_(home) {}

  Tensor tensor;
  std::unique_ptr<PackedTensor> packed;

 private:
  void unreferenced() override { home_.recycle(this); }

  Pool<SavedTensor>& home_;
};

class Tracer;

/// One process of PyTorch while its program is written: where ops go, which module runs, and autograd's modes.
class Session {
  // Before all that may refer to what lies here.
  Pool<Storage> storages_;
  Pool<Node> nodes_;
  Pool<SavedTensor> saved_tensors_;

 public:
  Session(Process& its_process, const TorchBehavior& behavior)
      : process(its_process), labels_(its_process), behavior_(behavior) {}
  /// What is left lives until the process ends: nothing is given up any more.
  void finish() { finished_ = true; }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Process& process;

  /// A tensor of its own storage. Its label is the running module's name and `what`.
  [[nodiscard]] Tensor empty(Shape sizes, DType dtype, std::string_view what);
  [[nodiscard]] Tensor empty_strided(Shape sizes, Shape strides, DType dtype, std::string_view what);
  [[nodiscard]] Tensor empty_strided(Shape sizes, Shape strides, DType dtype, std::string_view what, Category category);
  [[nodiscard]] Tensor empty(Shape sizes, DType dtype, std::string_view what, Category category);
  [[nodiscard]] Tensor empty(const Shape& sizes, DType dtype, LabelId label, Category category);
  /// What a fused kernel holds between its steps, which takes no memory.
  [[nodiscard]] Tensor in_registers(Shape sizes, Shape strides, DType dtype, std::string_view what);
  /// A kernel on the current stream: operands in the operation's order, undefined where it goes without.
  void launch(const Computation& what, Operands inputs, Operands outputs, const Scratch& scratch = {});
  /// What a tensor holds goes to another one, between the device and the host, on the current stream. Both are
  /// contiguous.
  void copy(const Tensor& from, const Tensor& to);
  /// A collective of my group on the current stream, of the larger side's elements; nothing happens in a group of one.
  void collective(CommSlot comm, CollectiveKind kind, const Tensor& in, const Tensor& out,
                  Reduction reduction = Reduction::Sum);
  /// An uneven one.
  void collective(CommSlot comm, CollectiveKind kind, const Tensor& in, const Tensor& out, const MatrixRow& row);
  /// An all-reduce in place. Of a tensor on the host, by way of the device: gloo, whose messages go over the network
  /// too, is not modelled, and what is summed there is a number.
  void sum_over(CommSlot comm, const Tensor& tensor);
  /// The same where the framework does not look at the group's size first: a group of one still gets its communicator.
  void unchecked_collective(CommSlot comm, CollectiveKind kind, const Tensor& in, const Tensor& out,
                            Reduction reduction = Reduction::Sum);
  /// The same beside what the compute stream does next; Process::join makes that stream wait for it.
  [[nodiscard]] EventId collective_aside(CommSlot comm, CollectiveKind kind, const Tensor& in, const Tensor& out,
                                         Reduction reduction = Reduction::Sum);
  /// … on that stream, where the framework does not look at the group's size.
  [[nodiscard]] EventId unchecked_collective_aside(StreamId stream, CommSlot comm, CollectiveKind kind,
                                                   const Tensor& in, const Tensor& out, Reduction reduction);
  /// Tensor.record_stream: its memory is not handed out again before that stream has done what it was given. Nothing
  /// where the memory is that stream's own. `recorded` as in CrossStreamUse.
  void record_stream(const Tensor& tensor, StreamId stream, bool recorded = true) {
    if (process.allocation(tensor.buffer()).stream != stream)
      process.cross_stream_use(tensor.buffer(), stream, recorded);
  }
  /// From now on the storage counts as that.
  void reclassify(const Tensor& tensor, Category category);
  void relabel(const Tensor& tensor, LabelId label);
  /// untyped_storage().resize_(0): what views the storage has no memory until it is restored.
  void discard(const Tensor& tensor);
  /// … to its size again, and to what was computed again.
  void restore(const Tensor& tensor, const Tensor& again);
  /// Tensor.data = …: all that hold the tensor have that memory instead.
  void replace(const Tensor& tensor, Tensor data);

  /// A node for an operation on these inputs; none where no gradient will be asked for.
  [[nodiscard]] Ref<Node> node(Operands inputs);
  /// One that is made whoever asks for it.
  [[nodiscard]] Ref<Node> bare_node();
  [[nodiscard]] Saved save(const Tensor& tensor);
  /// What hooks make of a tensor that is saved; null where it is saved as it is.
  [[nodiscard]] std::unique_ptr<PackedTensor> pack(const Tensor& tensor) {
    return pack_ != nullptr ? (*pack_)(tensor) : nullptr;
  }
  /// What a backward pass will need counts as saved, or as recomputed.
  void keep(const Tensor& tensor);
  /// The same of what a function saves as it is, without hooks.
  void keep_saved(const Tensor& tensor);
  /// What was saved, made again where it was packed.
  [[nodiscard]] Tensor unpack(const Saved& saved);

  [[nodiscard]] const TorchBehavior& behavior() const { return behavior_; }

  /// A module, or a function, while it runs: part of the labels of what it allocates.
  class Scope {
   public:
    Scope(Session& session, std::string_view name, std::optional<Category> category = {});
    /// One whose whole name is known.
    Scope(Session& session, LabelId scope)
        : session_(session), scope_(std::exchange(session.scope_, scope)), category_(session.category_) {}
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Session& session_;
    LabelId scope_;
    std::optional<Category> category_;
  };
  /// Runs what a node was made in: its labels and category.
  class BackwardScope {
   public:
    BackwardScope(Session& session, const Node& node);
    ~BackwardScope();
    BackwardScope(const BackwardScope&) = delete;
    BackwardScope& operator=(const BackwardScope&) = delete;

   private:
    Session& session_;
    LabelId scope_;
    std::optional<Category> category_;
    bool backward_;
  };

  /// A region that runs forward once more while its backward pass is due.
  class Again {
   public:
    Again(Session& session, LabelId scope)
        : session_(session),
          scope_(std::exchange(session.scope_, scope)),
          category_(std::exchange(session.category_, Category::Recompute)),
          recording_(std::exchange(session.grad_enabled, true)) {}
    ~Again() {
      session_.scope_ = scope_;
      session_.category_ = category_;
      session_.grad_enabled = recording_;
    }
    Again(const Again&) = delete;
    Again& operator=(const Again&) = delete;

   private:
    Session& session_;
    LabelId scope_;
    std::optional<Category> category_;
    bool recording_;
  };

  void mark(Phase phase, std::string_view text) {
    if (tracer == nullptr && !under_one_mark_) process.mark(phase, text);
  }
  void mark(Phase phase, LabelId label) {
    if (tracer == nullptr && !under_one_mark_) process.mark(phase, label);
  }
  /// Whatever runs is of that mark while it lives.
  class UnderOneMark {
   public:
    UnderOneMark(Session& session, Phase phase, std::string_view text) : session_(session) {
      session_.mark(phase, text);
      session_.under_one_mark_ = true;
    }
    ~UnderOneMark() { session_.under_one_mark_ = false; }
    UnderOneMark(const UnderOneMark&) = delete;
    UnderOneMark& operator=(const UnderOneMark&) = delete;

   private:
    Session& session_;
  };

  [[nodiscard]] bool recalled(Dispatched what, std::span<Tensor> results) {
    return dispatch_mode != nullptr && dispatch_mode->recalls(what, results);
  }
  void made(Dispatched what, std::span<const Tensor> results) {
    if (dispatch_mode != nullptr) dispatch_mode->made(what, results);
  }

  // Modes.
  bool grad_enabled = true;
  DispatchMode* dispatch_mode = nullptr;
  std::optional<DType> autocast;  ///< to which matrix products convert
  std::map<BufferId, Tensor> autocast_cache;

  /// What functions written in Python refer to (ctx.run_function of a reentrant checkpoint), and leaves that are no
  /// parameters, with their gradients, live until the graph goes, and so until the loss does.
  std::vector<std::shared_ptr<void>> outlives_backward;

  /// What a region that runs again with reentrance is given, while it runs.
  std::shared_ptr<Leaf> checkpointed_input;

  /// What a parameter's own tensor, or a buffer that modules keep, is called in the model.
  [[nodiscard]] std::string parameter_name(const Tensor& tensor) const { return name_of(tensor.buffer()); }

  /// torch.cuda.current_stream.
  [[nodiscard]] StreamId stream() const { return stream_; }

  /// The module, or function, that is running.
  [[nodiscard]] LabelId scope() const { return scope_; }
  /// Of the running module, only its input was saved.
  void checkpointed(const Tensor& input, const Tensor& output);

  Engine* engine = nullptr;  ///< that runs a graph backward now
  /// Of the node that it runs, a bit for each input: its gradient is not asked for. Where all of a graph is run
  /// backward none is set.
  std::uint32_t unrequested = 0;
  [[nodiscard]] bool asks_for(std::size_t input) const { return (unrequested >> input & 1U) == 0; }
  /// Is told the inputs of each operation before it runs, where somebody wants to know: modules' forward pre-hooks.
  std::function<void(Operands)> before_operation{};
  Recorder* recorder = nullptr;  ///< is told what happens, where there is one
  Tracer* tracer = nullptr;      ///< what happens is written there, where there is one, and not in the program

  void give_up(Storage& storage);
  [[nodiscard]] Ref<Storage> storage_of(BufferId buffer) { return Ref(storages_.make(*this, buffer)); }

 private:
  friend class SavedTensorsHooks;
  friend class OnStream;
  friend class OnHost;
  friend class OnDevice;
  friend class InMemory;
  Tensor make(const Shape& sizes, const Shape& strides, DType dtype, std::string_view what, Category category);
  Tensor make(const Shape& sizes, const Shape& strides, DType dtype, LabelId label, Category category,
              MemorySpace space);
  [[nodiscard]] Category default_category() const { return category_.value_or(Category::Temporaries); }
  [[nodiscard]] std::string name_of(BufferId buffer) const;
  [[nodiscard]] Operand operand(const Tensor& tensor, BufferId buffer);
  void view(Operands operands, std::vector<ViewedOperand>& into);

  Labels labels_;
  LabelId scope_;
  std::optional<Category> category_;
  bool backward_ = false;        ///< a node is running
  bool under_one_mark_ = false;  ///< what runs is not told apart
  const PackHook* pack_ = nullptr;
  StreamId stream_ = Process::compute_stream;
  MemorySpace space_ = MemorySpace::Device;
  std::int64_t sequence_ = 0;                    ///< of the next node
  std::vector<ViewedOperand> inputs_, outputs_;  ///< of the kernel that is being launched
  TorchBehavior behavior_;
  bool finished_ = false;
};

/// Where it is in memory, as (part of) that parameter or its gradient.
[[nodiscard]] StateTensor state_tensor(std::string parameter, const Tensor& tensor, std::int64_t first = 0);

/// torch.autocast: matrix products convert their operands. What was converted is given up with the outermost one.
class Autocast {
 public:
  Autocast(Session& session, std::optional<DType> dtype)
      : session_(session), before_(std::exchange(session.autocast, dtype)) {}
  ~Autocast() {
    session_.autocast = before_;
    if (!before_) session_.autocast_cache.clear();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  Session& session_;
  std::optional<DType> before_;
};

/// torch.autograd.graph.saved_tensors_hooks: what is saved is packed, and unpacked when it is asked for.
class SavedTensorsHooks {
 public:
  SavedTensorsHooks(Session& session, PackHook pack)
      : session_(session), pack_(std::move(pack)), outer_(std::exchange(session.pack_, &pack_)) {}
  ~SavedTensorsHooks() { session_.pack_ = outer_; }
  SavedTensorsHooks(const SavedTensorsHooks&) = delete;
  SavedTensorsHooks& operator=(const SavedTensorsHooks&) = delete;

 private:
  Session& session_;
  PackHook pack_;
  const PackHook* outer_;
};

/// torch.cuda.stream: kernels run, and tensors are made, on that stream.
class OnStream {
 public:
  OnStream(Session& session, StreamId stream) : session_(session), before_(std::exchange(session.stream_, stream)) {}
  ~OnStream() { session_.stream_ = before_; }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  Session& session_;
  StreamId before_;
};

/// torch.device("cpu"): what is made is made there, and the host thread computes.
class OnHost {
 public:
  explicit OnHost(Session& session, MemorySpace space = MemorySpace::Pageable)
      : session_(session),
        stream_(std::exchange(session.stream_, StreamId{})),
        space_(std::exchange(session.space_, space)) {}
  ~OnHost() { session_.stream_ = stream_, session_.space_ = space_; }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;

 private:
  Session& session_;
  StreamId stream_;
  MemorySpace space_;
};

/// What is made is in memory of another kind, which the device reaches: it computes.
class InMemory {
 public:
  InMemory(Session& session, MemorySpace space) : session_(session), before_(std::exchange(session.space_, space)) {}
  ~InMemory() { session_.space_ = before_; }
  InMemory(const InMemory&) = delete;
  InMemory& operator=(const InMemory&) = delete;

 private:
  Session& session_;
  MemorySpace before_;
};

/// Where the device is meant while the host is: on the compute stream.
class OnDevice {
 public:
  explicit OnDevice(Session& session)
      : session_(session),
        stream_(std::exchange(session.stream_, Process::compute_stream)),
        space_(std::exchange(session.space_, MemorySpace::Device)) {}
  ~OnDevice() { session_.stream_ = stream_, session_.space_ = space_; }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  Session& session_;
  StreamId stream_;
  MemorySpace space_;
};

/// Runs without recording anything for a backward pass.
class NoGrad {
 public:
  explicit NoGrad(Session& session) : session_(session), before_(std::exchange(session.grad_enabled, false)) {}
  ~NoGrad() { session_.grad_enabled = before_; }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  Session& session_;
  bool before_;
};

}  // namespace tidemark::parallel::torch
