#include "scenarios/recordings/memory_snapshot_writer.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/recordings/pickle/pickle_writer.hpp"

namespace tidemark::scenarios {
namespace {

// Key by key as THCPModule_memorySnapshot does (torch/csrc/cuda/Module.cpp).
class SnapshotWriter {
 public:
  SnapshotWriter(std::ostream& out, const MemorySnapshot& snapshot)
      : out_(out), snapshot_(snapshot), frames_(snapshot.frames.size()), stacks_(snapshot.stacks.size()) {}

  void write() {
    out_.begin_dict();
    out_.key("segments");
    out_.begin_list();
    for (const SegmentRecord& s : snapshot_.segments) segment(s);
    out_.end_list();
    out_.key("device_traces");
    out_.begin_list();
    for (const std::vector<TraceEvent>& trace : snapshot_.device_traces) {
      out_.begin_list();
      for (const TraceEvent& e : trace) event(e);
      out_.end_list();
    }
    out_.end_list();
    if (snapshot_.settings) settings(*snapshot_.settings);
    out_.key("external_annotations");
    out_.begin_list();
    for (const ExternalAnnotation& a : snapshot_.annotations) annotation(a);
    out_.end_list();
    out_.end_dict();
    out_.finish();
  }

 private:
  void segment(const SegmentRecord& s) {
    Bytes allocated, active, requested;
    for (const BlockRecord& b : s.blocks) {
      if (b.state == BlockRecord::State::Inactive) continue;
      if (b.state == BlockRecord::State::ActiveAllocated) allocated += b.size;
      active += b.size;
      requested += b.requested;
    }
    out_.begin_dict();
    integer("device", s.device);
    integer("address", static_cast<std::int64_t>(s.address.value));
    integer("total_size", s.size.count());
    integer("allocated_size", allocated.count());
    integer("active_size", active.count());
    integer("requested_size", requested.count());
    integer("stream", s.stream);
    text("segment_type", s.pool == PoolKind::Small ? "small" : "large");
    mempool(s.mempool);
    boolean("is_expandable", s.expandable);
    stack(s.stack);
    out_.key("blocks");
    out_.begin_list();
    for (const BlockRecord& b : s.blocks) block(b);
    out_.end_list();
    out_.end_dict();
  }

  void block(const BlockRecord& b) {
    out_.begin_dict();
    integer("address", static_cast<std::int64_t>(b.address.value));
    integer("size", b.size.count());
    integer("requested_size", b.requested.count());
    text("state", name(b.state));
    stack(b.stack);
    out_.end_dict();
  }

  void event(const TraceEvent& e) {
    out_.begin_dict();
    text("action", name(e.action));
    const bool is_oom = e.action == TraceEvent::Action::OutOfMemory;
    integer(is_oom ? "device_free" : "addr", static_cast<std::int64_t>(e.address.value));
    integer("size", e.size.count());
    integer("stream", e.stream);
    if (e.mempool != MempoolId{}) mempool(e.mempool);
    if (e.time_us) integer("time_us", *e.time_us);
    if (e.category.valid()) text("category", snapshot_.categories[e.category.index()]);
    stack(e.stack);
    out_.end_dict();
  }

  void settings(const AllocatorSettings& s) {
    out_.key("allocator_settings");
    out_.begin_dict();
    text("PYTORCH_CUDA_ALLOC_CONF", s.text);
    integer("max_split_size", s.max_split_size ? s.max_split_size->count() : -1);
    out_.key("garbage_collection_threshold");
    out_.number(s.garbage_collection_threshold);
    boolean("expandable_segments", s.expandable_segments);
    if (s.trace_overflowed) boolean("trace_alloc_overflowed", true);
    out_.key("roundup_power2_divisions");
    out_.begin_dict();
    for (std::size_t i = 0; i < s.roundup_divisions.size(); ++i)
      integer(std::to_string(1 << i), static_cast<std::int64_t>(s.roundup_divisions[i]));
    out_.end_dict();
    out_.end_dict();
  }

  void annotation(const ExternalAnnotation& a) {
    out_.begin_dict();
    text("stage", a.stage == ExternalAnnotation::Stage::Start ? "START" : "END");
    text("name", a.name);
    integer("device", a.device);
    integer("time_us", a.time_us);
    out_.end_dict();
  }

  // Shared as in the snapshot: frames would otherwise be most of the file.
  void stack(StackId id) {
    out_.key("frames");
    std::optional<PickleWriter::Place>& place = id.valid() ? stacks_[id.index()] : no_stack_;
    if (place) return out_.again(*place);
    out_.begin_list();
    place = out_.remember();
    if (id.valid())
      for (const FrameId f : snapshot_.stacks[id.index()]) frame(f);
    out_.end_list();
  }

  void frame(FrameId id) {
    std::optional<PickleWriter::Place>& place = frames_[id.index()];
    if (place) return out_.again(*place);
    const StackFrame& f = snapshot_.frames[id.index()];
    out_.begin_dict();
    place = out_.remember();
    text("name", f.name);
    text("filename", f.file);
    integer("line", f.line);
    out_.end_dict();
  }

  void mempool(MempoolId id) {
    out_.key("segment_pool_id");
    out_.begin_tuple();
    out_.integer(id.first);
    out_.integer(id.second);
    out_.end_tuple();
  }
  void integer(std::string_view key, std::int64_t value) {
    out_.key(key);
    out_.integer(value);
  }
  void boolean(std::string_view key, bool value) {
    out_.key(key);
    out_.boolean(value);
  }
  void text(std::string_view key, std::string_view value) {
    out_.key(key);
    out_.text(value);
  }

  PickleWriter out_;
  const MemorySnapshot& snapshot_;
  std::vector<std::optional<PickleWriter::Place>> frames_, stacks_;
  std::optional<PickleWriter::Place> no_stack_;
};

}  // namespace

void write_memory_snapshot(std::ostream& out, const MemorySnapshot& snapshot) { SnapshotWriter(out, snapshot).write(); }

}  // namespace tidemark::scenarios
