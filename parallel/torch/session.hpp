#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/runtime/runtime.hpp"
#include "parallel/torch/autograd.hpp"
#include "parallel/torch/process.hpp"
#include "parallel/torch/record.hpp"
#include "parallel/torch/tensor.hpp"

namespace tidemark::parallel::torch {

/// What a parameter's own tensor is called after its module.
inline constexpr std::string_view trained_parameter = "parameter";

/// A region of torch.utils.checkpoint without reentrance: which tensors it would have saved, and how to run it again.
struct CheckpointFrame {
  std::function<void(Session&)> run_again;
  std::vector<std::weak_ptr<SavedTensor>> saved;
  std::size_t made_again = 0;
  bool done = false;
};

struct SavedTensor {
  Tensor tensor;
  std::shared_ptr<CheckpointFrame> frame;
};

/// One process of PyTorch while its program is written: where ops go, which module runs, and autograd's modes.
class Session {
 public:
  Session(Process& its_process, const TorchHabits& habits) : process(its_process), habits_(habits) {}
  /// What is left lives until the process ends: nothing is given up any more.
  void finish() { finished_ = true; }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Process& process;

  /// A tensor of its own storage. Its label is the running module's name and `what`.
  [[nodiscard]] Tensor empty(Shape sizes, DType dtype, std::string_view what);
  [[nodiscard]] Tensor empty_strided(Shape sizes, Shape strides, DType dtype, std::string_view what);
  [[nodiscard]] Tensor empty(Shape sizes, DType dtype, std::string_view what, Category category);
  void launch(const Kernel& kernel, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs);
  void stream(Streaming kind, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs);
  /// A kernel that was launched by itself, for who listens.
  void launched(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs);
  /// From now on the storage counts as that.
  void reclassify(const Tensor& tensor, Category category);

  /// A node for an operation on these inputs; none where no gradient will be asked for.
  [[nodiscard]] std::shared_ptr<Node> node(const std::vector<const Tensor*>& inputs);
  [[nodiscard]] Saved save(const Tensor& tensor);
  /// What a backward pass will need counts as saved, or as recomputed.
  void keep(const Tensor& tensor);
  /// What was saved; runs its region again where it was checkpointed.
  [[nodiscard]] Tensor unpack(const Saved& saved);

  [[nodiscard]] const TorchHabits& habits() const { return habits_; }

  /// A module, or a function, while it runs: part of the labels of what it allocates.
  class Scope {
   public:
    Scope(Session& session, std::string_view name, std::optional<Category> category = {});
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Session& session_;
    std::string path_;
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
    std::string path_;
    std::optional<Category> category_;
    bool backward_;
  };

  /// A region that runs forward once more while its backward pass is due.
  class Again {
   public:
    explicit Again(Session& session)
        : session_(session),
          category_(std::exchange(session.category_, Category::Recompute)),
          recording_(std::exchange(session.grad_enabled, true)) {}
    ~Again() {
      session_.category_ = category_;
      session_.grad_enabled = recording_;
    }
    Again(const Again&) = delete;
    Again& operator=(const Again&) = delete;

   private:
    Session& session_;
    std::optional<Category> category_;
    bool recording_;
  };

  [[nodiscard]] const std::string& path() const { return path_; }
  void mark(Phase phase, std::string_view text) { process.mark(phase, text); }

  // Modes.
  bool grad_enabled = true;
  std::optional<DType> autocast;  ///< to which matrix products convert
  std::map<const Storage*, Tensor> autocast_cache;

  /// What functions written in Python refer to (ctx.run_function of a reentrant checkpoint) lives until the graph goes,
  /// and so until the loss does.
  std::vector<std::vector<Tensor>> outlives_backward;

  // Regions of torch.utils.checkpoint.
  void pack_into(std::shared_ptr<CheckpointFrame> frame) { packing_ = std::move(frame); }
  /// Of the region of that name, only its input was saved.
  void checkpointed(std::string_view name, const Tensor& input, const Tensor& output);

  Recorder* recorder = nullptr;  ///< is told what happens, where there is one

  void give_up(const Storage& storage);

 private:
  Tensor make(Shape sizes, Shape strides, DType dtype, std::string_view what, Category category);
  [[nodiscard]] Category default_category() const { return category_.value_or(Category::Temporaries); }
  void run_again(CheckpointFrame& frame);
  [[nodiscard]] std::string name_of(const Tensor& tensor) const;

  TorchHabits habits_;
  std::string path_;
  std::optional<Category> category_;
  bool backward_ = false;  ///< a node is running
  std::shared_ptr<CheckpointFrame> packing_;
  CheckpointFrame* again_ = nullptr;  ///< the region that is being run again
  std::int64_t nodes_ = 0;
  bool finished_ = false;
};

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
