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

#include "parallel/frameworks/deepspeed/parameter_swapper.hpp"

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
  Tensor partition;                     ///< ds_tensor; where it is swapped out, its file
  Tensor secondary;                     ///< ds_secondary_tensor: of what neighbours hold together, where they do
  std::optional<SwappedPart> swapped;   ///< final_location is NVMe
  std::int64_t elements = 0, each = 0;  ///< of the whole; of every rank's part, the last of which may be padded
  bool trained = true;
  bool viewed = false;                       ///< what saves it saves a view, which keeps the memory that it has then
  Category category = Category::Parameters;  ///< of its parts, and of it whole
  Availability status = Availability::NotAvailable;
  bool persists = false;         ///< ds_persist: stays gathered between steps
  std::set<std::size_t> active;  ///< modules that are running
};

/// Parameters of one type that are gathered by one call, and wait in one buffer until the last of them is asked for.
struct Gathering {
  std::vector<std::size_t> parameters;
  Tensor flat;             ///< rank by rank; none where the only one was gathered to where it stays
  bool secondary = false;  ///< of secondary parts
  bool complete = false;
};

/// Where the parts of parameters lie, if not on the device.
struct PartsOnHost {
  std::optional<MemorySpace> space;
  const NvmeBehavior* nvme = nullptr;  ///< … and in files, as it says
  std::int64_t sub_group_size = 0;     ///< what is updated together lies together
  std::int64_t untied = 0;             ///< elements of a parameter that goes once all are there
};

/// _create_fp16_sub_groups: so many parameters each, of parts so large.
[[nodiscard]] std::vector<std::size_t> sub_groups(const std::vector<std::int64_t>& parts, std::int64_t size);

/// All parameters of a model, and how they come and go.
class PartitionedParameters {
 public:
  /// What is gathered is made and copied on `stream`. Neighbours hold secondary parts together (hpZ), where there is
  /// more than one of them. Parameters that have memory are partitioned one after another, in their order.
  PartitionedParameters(Session& session, const DataGroup& group, const DataGroup& neighbours, StreamId stream,
                        NamedParameters parameters, const PartsOnHost& host);

  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] PartitionedParameter& operator[](std::size_t p) { return all_[p]; }
  [[nodiscard]] const PartitionedParameter& operator[](std::size_t p) const { return all_[p]; }
  /// The rank's parts of some, which are updated together, one after another; undefined where some are in files. They
  /// begin at so many elements.
  [[nodiscard]] Tensor flat(std::int64_t begin, std::int64_t elements) const;
  /// Of a parameter, wherever it is.
  [[nodiscard]] DType dtype(std::size_t p) const { return all_[p].leaf->value.dtype; }
  /// How many of a parameter's elements are in the rank's part of it.
  [[nodiscard]] std::int64_t held(std::size_t p) const;
  [[nodiscard]] const DataGroup& group() const { return group_; }
  [[nodiscard]] StreamId stream() const { return stream_; }

  /// all_gather_coalesced, of parameters in their order, none of which is available, and all or none of which have
  /// secondary parts: a call for each type that they have.
  [[nodiscard]] std::vector<std::shared_ptr<Gathering>> gather(const std::vector<std::size_t>& parameters);
  /// AllGatherCoalescedHandle.wait.
  void wait(Gathering& gathering);
  /// _all_gather, on the compute stream, each to where it stays.
  void gather_now(std::span<const std::size_t> parameters);
  /// free_param. What was saved is the parameter, which has no memory from now on; or, detached, the memory itself.
  enum class Saved : std::uint8_t { Parameter, Memory };
  void free(std::size_t p, Saved saved = Saved::Parameter);
  /// invalidate_secondary_tensor: parameters that are trained were updated.
  void forget_secondary();

  /// Whether the rank's part of a parameter is in a file, and nobody has asked for it.
  [[nodiscard]] bool is_in_file(std::size_t p) const { return all_[p].swapped && !all_[p].swapped->buffer; }
  /// Parts are read to as many buffers as there are for them, whoever asks for them later.
  void read_ahead(const std::vector<std::size_t>& parameters);
  [[nodiscard]] std::size_t available_buffers() const { return swapper_->available_buffers(); }
  /// What is gathered for good gives its buffer up.
  void release_persistent(const std::vector<std::size_t>& parameters);
  [[nodiscard]] bool swaps() const { return swapper_.has_value(); }
  /// _swap_in_sub_group_to_flat_buffer: one part after the other.
  void copy_to(std::span<const std::size_t> parameters, const Tensor& flat);
  /// _swap_in_fp16_params: all in one buffer, until something else is read.
  [[nodiscard]] Tensor in_a_buffer(std::span<const std::size_t> parameters);
  /// _partitioned_params_swap_out.
  void update(std::span<const std::size_t> parameters, const Tensor& flat);

 private:
  [[nodiscard]] bool alone() const { return group_.ranks == 1; }
  /// The only rank's part of a parameter is where it is used.
  [[nodiscard]] bool stays() const { return alone() && !offload_; }
  /// A rank's part, on the device.
  [[nodiscard]] Tensor on_device(std::size_t p);
  void stand_alone(PartitionedParameter& its);
  void partition(const PartsOnHost& host);
  [[nodiscard]] Tensor drawn_whole(const std::string& name, std::int64_t elements, DType kept);
  [[nodiscard]] std::vector<Tensor> made_module(std::size_t first);
  void cut(PartitionedParameter& its, const Tensor& part);
  [[nodiscard]] Tensor made_part(const PartitionedParameter& its);
  void make_parts(const PartsOnHost& host);
  void lay_out(const PartsOnHost& host);
  /// _ensure_availability_of_partitioned_params.
  void ensure_read(std::span<const std::size_t> parameters);
  void release_part(PartitionedParameter& its);
  enum class From : std::uint8_t { Parts, Secondary };
  void gather_to_place(std::size_t p, From from);
  [[nodiscard]] std::shared_ptr<Gathering> gather_together(std::vector<std::size_t> parameters);
  void keep_secondary(std::size_t p);
  /// Of a rank's part, or secondary part.
  [[nodiscard]] std::int64_t each(std::size_t p, bool secondary) const {
    return secondary ? all_[p].each * (group_.ranks / neighbours_.ranks) : all_[p].each;
  }
  void place(std::size_t p, Tensor whole);
  /// Tensor.data = torch.empty(0): what else refers to its memory keeps that.
  void let_go(PartitionedParameter& its) { its.leaf->value.storage = s_.storage_of({}); }

  Session& s_;
  const DataGroup group_, neighbours_;
  const StreamId stream_;
  const std::optional<MemorySpace> offload_;
  bool were_whole_ = false;  ///< made before they were partitioned
  DType dtype_;
  std::vector<PartitionedParameter> all_;
  Tensor buffer_;          ///< parts one after another: all, or the first of them
  std::int64_t flat_ = 0;  ///< of its elements, those of whole sub-groups
  std::optional<ParameterSwapper> swapper_;
  SwappedPart untied_;
};

}  // namespace tidemark::parallel::deepspeed
