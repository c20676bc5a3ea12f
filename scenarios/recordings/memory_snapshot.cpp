#include "scenarios/recordings/memory_snapshot.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstddef>
#include <span>
#include <string_view>
#include <unordered_map>

#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {
namespace {

template <class T>
struct Word {
  std::string_view text;
  T value;
};

constexpr Word<TraceEvent::Action> actions[] = {
    {"alloc", TraceEvent::Action::Alloc},
    {"free_requested", TraceEvent::Action::FreeRequested},
    {"free_completed", TraceEvent::Action::FreeCompleted},
    {"segment_alloc", TraceEvent::Action::SegmentAlloc},
    {"segment_free", TraceEvent::Action::SegmentFree},
    {"segment_map", TraceEvent::Action::SegmentMap},
    {"segment_unmap", TraceEvent::Action::SegmentUnmap},
    {"snapshot", TraceEvent::Action::Snapshot},
    {"oom", TraceEvent::Action::OutOfMemory},
    {"annotate", TraceEvent::Action::Annotate},
};
constexpr Word<BlockRecord::State> states[] = {
    {"inactive", BlockRecord::State::Inactive},
    {"active_allocated", BlockRecord::State::ActiveAllocated},
    {"active_pending_free", BlockRecord::State::ActivePendingFree},
    {"active_awaiting_free", BlockRecord::State::ActivePendingFree},  // in the documentation, not in the code
};
constexpr Word<PoolKind> pools[] = {{"small", PoolKind::Small}, {"large", PoolKind::Large}};
constexpr Word<ExternalAnnotation::Stage> stages[] = {{"START", ExternalAnnotation::Stage::Start},
                                                      {"END", ExternalAnnotation::Stage::End}};

// More than any device has, and small enough for sums.
constexpr std::int64_t largest_size = 1LL << 60;

/// Where in the snapshot the reader is: a chain of keys and indices, spelled out only if something is wrong there.
struct Path {
  const Path* parent = nullptr;
  std::string_view key;
  std::size_t index = 0;  // if there is no key

  [[nodiscard]] std::string text() const {
    const std::string before = parent == nullptr ? std::string() : parent->text();
    if (key.empty()) return parent == nullptr ? "snapshot" : before + '[' + std::to_string(index) + ']';
    return before + '.' + std::string(key);
  }
};

class SnapshotReader {
  using Entries = std::span<const PickleValue>;

 public:
  SnapshotReader(const std::string& file, TraceSink sink) : file_(file), sink_(std::move(sink)) {}

  /// What takes the events of the traces while the pickle is read.
  PickleConsumer consumer() {
    return {"device_traces",
            [this](Pickle& so_far, std::size_t device, std::size_t index, const PickleValue& value, Entries entries) {
              pickle_ = &so_far;
              spend(1 + entries.size());
              const Path top;
              const Path traces{&top, "device_traces"};
              const Path trace{&traces, {}, device};
              sink_(device, event(value, entries, Path{&trace, {}, index}));
              share_frames(so_far, entries);
            }};
  }

  MemorySnapshot read(const Pickle& pickle) {
    pickle_ = &pickle;
    MemorySnapshot snapshot;
    const Path top;
    if (const auto* segments = std::get_if<PickleList>(&pickle_->root())) {
      each(*segments, top, [&](const PickleValue& v, const Path& p) { snapshot.segments.push_back(segment(v, p)); });
    } else if (const auto* dict = std::get_if<PickleDict>(&pickle_->root())) {
      if (pickle_->find(*dict, "segments") == nullptr && pickle_->find(*dict, "device_traces") == nullptr) {
        add(top, "has neither segments nor device_traces",
            "a memory snapshot comes from torch.cuda.memory._dump_snapshot");
      }
      read_top(pickle_->entries(*dict), top, snapshot);
    } else {
      add_kind(top, "a dict", pickle_->root());
    }
    if (!problems_.empty()) throw InputError(problems_);
    snapshot.frames = std::move(frames_);
    snapshot.stacks = std::move(stacks_);
    snapshot.categories = std::move(categories_);
    return snapshot;
  }

 private:
  // Each traceback is a list of its own, most of them with what another one holds.
  void share_frames(Pickle& so_far, Entries entries) const {
    const PickleValue* frames = so_far.find(entries, "frames");
    const auto* list = frames == nullptr ? nullptr : std::get_if<PickleList>(frames);
    if (list == nullptr || list->index >= stack_of_list_.size()) return;
    const StackId stack = stack_of_list_[list->index];
    if (stack.valid()) so_far.share(*list, list_of_stack_[stack.index()]);
  }

  void read_top(Entries dict, const Path& top, MemorySnapshot& snapshot) {
    each_of(dict, "segments", top,
            [&](const PickleValue& v, const Path& p) { snapshot.segments.push_back(segment(v, p)); });
    each_of(dict, "device_traces", top, [&](const PickleValue& v, const Path& p) {
      const std::size_t device = snapshot.device_traces.size();
      snapshot.device_traces.emplace_back();
      const auto* list = std::get_if<PickleList>(&v);
      if (list == nullptr) return add_kind(p, "a list", v);
      each(*list, p, [&](const PickleValue& e, const Path& q) {
        const auto* entries = std::get_if<PickleDict>(&e);
        sink_(device, event(e, entries == nullptr ? Entries{} : pickle_->entries(*entries), q));
      });
    });
    each_of(dict, "external_annotations", top,
            [&](const PickleValue& v, const Path& p) { snapshot.annotations.push_back(annotation(v, p)); });
    if (const PickleValue* found = pickle_->find(dict, "allocator_settings")) {
      snapshot.settings = settings(*found, Path{&top, "allocator_settings"});
    }
  }

  SegmentRecord segment(const PickleValue& value, const Path& path) {
    SegmentRecord record;
    const auto* dict = std::get_if<PickleDict>(&value);
    if (dict == nullptr) return add_kind(path, "a dict", value), record;
    const Entries entries = pickle_->entries(*dict);
    record.device = integer_or(entries, "device", path, 0);
    record.address = address(entries, "address", path);
    record.size = size(entries, "total_size", path, 1);
    record.stream = integer_or(entries, "stream", path, 0);
    record.pool = word(entries, "segment_type", path, pools);
    record.mempool = mempool(entries, "segment_pool_id", path);
    record.expandable = boolean_or(entries, "is_expandable", path, false);
    record.stack = stack(entries, path);
    Address end = record.address;
    each_of(entries, "blocks", path, [&](const PickleValue& v, const Path& p) {
      record.blocks.push_back(block(v, p, end));
      end = record.blocks.back().address + record.blocks.back().size;
    });
    return record;
  }

  BlockRecord block(const PickleValue& value, const Path& path, Address end_of_last) {
    BlockRecord record;
    const auto* dict = std::get_if<PickleDict>(&value);
    if (dict == nullptr) return add_kind(path, "a dict", value), record;
    const Entries entries = pickle_->entries(*dict);
    const bool has_address = pickle_->find(entries, "address") != nullptr;  // not in files of 2.0
    record.address = has_address ? address(entries, "address", path) : end_of_last;
    record.size = size(entries, "size", path, 1);
    record.requested =
        pickle_->find(entries, "requested_size") ? size(entries, "requested_size", path, 0) : record.size;
    record.state = word(entries, "state", path, states);
    record.stack = stack(entries, path);
    return record;
  }

  TraceEvent event(const PickleValue& value, Entries entries, const Path& path) {
    TraceEvent record;
    if (!std::holds_alternative<PickleDict>(value)) return add_kind(path, "a dict", value), record;
    record.action = word(entries, "action", path, actions);
    const bool is_annotation = record.action == TraceEvent::Action::Annotate;
    const bool is_request = record.action != TraceEvent::Action::Snapshot && !is_annotation;
    if (record.action == TraceEvent::Action::OutOfMemory) {
      record.address = address(entries, "device_free", path);
    } else if (!is_annotation) {
      record.address = address(entries, "addr", path);
    }
    if (!is_annotation) record.size = size(entries, "size", path, is_request ? 1 : 0);
    record.stream = integer_or(entries, "stream", path, 0);
    const bool old_key = pickle_->find(entries, "segment_pool_id") == nullptr;
    record.mempool = mempool(entries, old_key ? "pool_id" : "segment_pool_id", path);
    if (pickle_->find(entries, "time_us") != nullptr) record.time_us = integer_or(entries, "time_us", path, 0);
    record.stack = stack(entries, path);
    record.category = category(entries, path);
    return record;
  }

  AllocatorSettings settings(const PickleValue& value, const Path& path) {
    AllocatorSettings record;
    const auto* dict = std::get_if<PickleDict>(&value);
    if (dict == nullptr) return add_kind(path, "a dict", value), record;
    const Entries entries = pickle_->entries(*dict);
    record.text = text_or_empty(entries, "PYTORCH_CUDA_ALLOC_CONF", path);
    if (const std::int64_t limit = integer_or(entries, "max_split_size", path, -1); limit >= 0) {
      record.max_split_size = Bytes{limit};
    }
    record.garbage_collection_threshold = share_or_zero(entries, "garbage_collection_threshold", path);
    record.expandable_segments = boolean_or(entries, "expandable_segments", path, false);
    record.trace_overflowed = boolean_or(entries, "trace_alloc_overflowed", path, false);
    if (const PickleValue* divisions = pickle_->find(entries, "roundup_power2_divisions")) {
      const auto* table = std::get_if<PickleDict>(divisions);
      if (table == nullptr) return add_kind(Path{&path, "roundup_power2_divisions"}, "a dict", *divisions), record;
      read_divisions(pickle_->entries(*table), Path{&path, "roundup_power2_divisions"}, record.roundup_divisions);
    }
    return record;
  }

  // {"1": 0, "2": 0, "4": 0, ...}: MiB.
  void read_divisions(std::span<const PickleValue> entries, const Path& path,
                      std::array<std::uint64_t, 16>& divisions) {
    for (std::size_t i = 1; i < entries.size(); i += 2) {
      const auto* interval = std::get_if<PickleText>(&entries[i - 1]);
      const auto* value = std::get_if<std::int64_t>(&entries[i]);
      const std::string_view text = interval == nullptr ? std::string_view() : pickle_->text(*interval);
      std::uint64_t mebibytes = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mebibytes);
      const bool known = error == std::errc{} && end == text.data() + text.size() && std::has_single_bit(mebibytes) &&
                         mebibytes < 1ULL << divisions.size();
      const auto parts = static_cast<std::uint64_t>(value == nullptr ? -1 : *value);
      if (!known || (parts != 0 && !std::has_single_bit(parts)))
        return add(path, "does not map powers of two to powers of two");
      divisions[static_cast<std::size_t>(std::bit_width(mebibytes)) - 1] = parts;
    }
  }

  ExternalAnnotation annotation(const PickleValue& value, const Path& path) {
    ExternalAnnotation record;
    const auto* dict = std::get_if<PickleDict>(&value);
    if (dict == nullptr) return add_kind(path, "a dict", value), record;
    const Entries entries = pickle_->entries(*dict);
    record.stage = word(entries, "stage", path, stages);
    record.name = text_or_empty(entries, "name", path);
    record.device = integer_or(entries, "device", path, 0);
    record.time_us = integer_or(entries, "time_us", path, 0);
    return record;
  }

  // There are a few, if any.
  TraceCategoryId category(Entries dict, const Path& path) {
    if (pickle_->find(dict, "category") == nullptr) return {};
    const std::string name = text_or_empty(dict, "category", path);
    const auto [known, is_new] = category_of_name_.try_emplace(name, static_cast<std::int32_t>(categories_.size()));
    if (is_new) categories_.push_back(name);
    return TraceCategoryId{known->second};
  }

  // Lists with the same frames are one stack.
  StackId stack(Entries dict, const Path& path) {
    const PickleValue* frames = pickle_->find(dict, "frames");
    if (frames == nullptr) return {};
    const Path here{&path, "frames"};
    const auto* list = std::get_if<PickleList>(frames);
    if (list == nullptr) return add_kind(here, "a list", *frames), StackId{};
    if (list->index >= stack_of_list_.size()) stack_of_list_.resize(pickle_->container_count());
    StackId& known = stack_of_list_[list->index];
    if (known.valid() || pickle_->items(*list).empty()) return known;
    std::vector<FrameId> stack;
    each(*list, here, [&](const PickleValue& v, const Path& p) { stack.push_back(frame(v, p)); });
    std::vector<StackId>& alike = stacks_with_hash_[hash_of(stack)];
    const auto same =
        std::find_if(alike.begin(), alike.end(), [&](StackId id) { return stacks_[id.index()] == stack; });
    if (same != alike.end()) return known = *same;
    alike.push_back(StackId{static_cast<std::int32_t>(stacks_.size())});
    stacks_.push_back(std::move(stack));
    list_of_stack_.push_back(*list);
    return known = alike.back();
  }

  static std::uint64_t hash_of(const std::vector<FrameId>& stack) {
    std::uint64_t hash = 0xcbf2'9ce4'8422'2325;  // FNV-1a
    for (const FrameId frame : stack) hash = (hash ^ static_cast<std::uint64_t>(frame.value)) * 0x100'0000'01b3;
    return hash;
  }

  FrameId frame(const PickleValue& value, const Path& path) {
    const auto* dict = std::get_if<PickleDict>(&value);
    if (dict == nullptr) return add_kind(path, "a dict", value), FrameId{};
    const Entries entries = pickle_->entries(*dict);
    const auto [known, is_new] = frame_of_dict_.try_emplace(dict->index, static_cast<std::int32_t>(frames_.size()));
    if (is_new) {
      frames_.push_back({text_or_empty(entries, "name", path), text_or_empty(entries, "filename", path),
                         integer_or(entries, "line", path, 0)});
    }
    return FrameId{known->second};
  }

  // -- values of a dict -----------------------------------------------------------------------------------------------

  std::optional<std::int64_t> integer(Entries dict, std::string_view key, const Path& path) {
    const PickleValue* found = pickle_->find(dict, key);
    if (found == nullptr) return add(Path{&path, key}, "is missing"), std::nullopt;
    const auto* number = std::get_if<std::int64_t>(found);
    if (number == nullptr) return add_kind(Path{&path, key}, "an integer", *found), std::nullopt;
    return *number;
  }

  std::int64_t integer_or(Entries dict, std::string_view key, const Path& path, std::int64_t otherwise) {
    return pickle_->find(dict, key) == nullptr ? otherwise : integer(dict, key, path).value_or(otherwise);
  }

  Address address(Entries dict, std::string_view key, const Path& path) {
    const std::optional<std::int64_t> number = integer(dict, key, path);
    if (number && (*number < 0 || *number >= largest_size)) {
      add(Path{&path, key}, std::to_string(*number) + " is not an address on a device");
    }
    return Address{static_cast<std::uint64_t>(number.value_or(0))};
  }

  Bytes size(Entries dict, std::string_view key, const Path& path, std::int64_t least) {
    const std::optional<std::int64_t> number = integer(dict, key, path);
    if (number && (*number < least || *number >= largest_size)) {
      add(Path{&path, key}, std::to_string(*number) + " is not a size of memory on a device");
    }
    return Bytes{number.value_or(least)};
  }

  bool boolean_or(Entries dict, std::string_view key, const Path& path, bool otherwise) {
    const PickleValue* found = pickle_->find(dict, key);
    if (found == nullptr) return otherwise;
    const bool* boolean = std::get_if<bool>(found);
    if (boolean == nullptr) return add_kind(Path{&path, key}, "a boolean", *found), otherwise;
    return *boolean;
  }

  double share_or_zero(Entries dict, std::string_view key, const Path& path) {
    const PickleValue* found = pickle_->find(dict, key);
    if (found == nullptr) return 0;
    double share = 0;
    if (const double* number = std::get_if<double>(found)) {
      share = *number;
    } else if (const auto* whole = std::get_if<std::int64_t>(found)) {
      share = static_cast<double>(*whole);
    } else {
      return add_kind(Path{&path, key}, "a number", *found), 0;
    }
    if (share >= 0 && share <= 1) return share;
    return add(Path{&path, key}, std::to_string(share) + " is not a share of the memory"), 0;
  }

  std::string text_or_empty(Entries dict, std::string_view key, const Path& path) {
    const PickleValue* found = pickle_->find(dict, key);
    if (found == nullptr) return {};
    const auto* text = std::get_if<PickleText>(found);
    if (text == nullptr) return add_kind(Path{&path, key}, "a text", *found), std::string();
    spend(pickle_->text(*text).size());
    return std::string(pickle_->text(*text));
  }

  template <class T, std::size_t n>
  T word(Entries dict, std::string_view key, const Path& path, const Word<T> (&words)[n]) {
    const Path here{&path, key};
    const PickleValue* found = pickle_->find(dict, key);
    if (found == nullptr) return add(here, "is missing"), words[0].value;
    const auto* text = std::get_if<PickleText>(found);
    if (text == nullptr) return add_kind(here, "a text", *found), words[0].value;
    for (const Word<T>& known : words) {
      if (known.text == pickle_->text(*text)) return known.value;
    }
    std::string all;
    for (const Word<T>& known : words) all += (all.empty() ? "" : ", ") + std::string(known.text);
    const std::string shown(pickle_->text(*text).substr(0, 40));
    return add(here, '"' + shown + "\" is not known", "one of " + all), words[0].value;
  }

  MempoolId mempool(Entries dict, std::string_view key, const Path& path) {
    const PickleValue* found = pickle_->find(dict, key);
    if (found == nullptr) return {};
    if (const auto* tuple = std::get_if<PickleTuple>(found)) {
      const std::span<const PickleValue> items = pickle_->items(*tuple);
      if (items.size() == 2 && std::holds_alternative<std::int64_t>(items[0]) &&
          std::holds_alternative<std::int64_t>(items[1])) {
        return {std::get<std::int64_t>(items[0]), std::get<std::int64_t>(items[1])};
      }
    }
    return add_kind(Path{&path, key}, "two integers", *found), MempoolId{};
  }

  // -- lists ----------------------------------------------------------------------------------------------------------

  template <class Visit>
  void each(PickleList list, const Path& path, Visit visit) {
    const std::span<const PickleValue> items = pickle_->items(list);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto* dict = std::get_if<PickleDict>(&items[i]);
      spend(1 + (dict == nullptr ? 0 : pickle_->entries(*dict).size()));
      visit(items[i], Path{&path, {}, i});
    }
  }

  template <class Visit>
  void each_of(Entries dict, std::string_view key, const Path& path, Visit visit) {
    const PickleValue* found = pickle_->find(dict, key);
    if (found == nullptr) return;
    const Path here{&path, key};
    const auto* list = std::get_if<PickleList>(found);
    if (list == nullptr) return add_kind(here, "a list", *found);
    each(*list, here, visit);
  }

  // A pickle may refer to one list from a thousand places, each of which is read: a small file could keep the reader
  // busy for years. Snapshots share only frames.
  void spend(std::size_t work) {
    work_ += work;
    if (work_ <= 64 * (pickle_->value_count() + pickle_->byte_count())) return;
    add(Path{}, "refers to the same lists and texts more often than any snapshot does");
    throw InputError(problems_);
  }

  // -- problems -------------------------------------------------------------------------------------------------------

  void add_kind(const Path& path, std::string_view expected, const PickleValue& found) {
    add(path, "is " + std::string(kind_of(found)) + ", not " + std::string(expected));
  }

  void add(const Path& path, std::string message, std::string hint = {}) {
    constexpr std::size_t enough = 20;  // one mistake in the writer is a mistake in every event
    if (problems_.size() >= enough) return;
    problems_.push_back(Problem{.file = file_,
                                .line = 0,
                                .column = 0,
                                .message = path.text() + ' ' + std::move(message),
                                .hint = std::move(hint)});
  }

  const Pickle* pickle_ = nullptr;  // as far as it is read
  const std::string& file_;
  TraceSink sink_;
  std::vector<StackFrame> frames_;
  std::vector<std::vector<FrameId>> stacks_;
  std::vector<PickleList> list_of_stack_;  // the first with these frames
  std::unordered_map<std::uint32_t, std::int32_t> frame_of_dict_;
  std::vector<StackId> stack_of_list_;  // by container
  std::unordered_map<std::uint64_t, std::vector<StackId>> stacks_with_hash_;
  std::vector<std::string> categories_;
  std::unordered_map<std::string, std::int32_t> category_of_name_;
  std::size_t work_ = 0;
  std::vector<Problem> problems_;
};

template <class T, std::size_t n>
std::string_view text_of(T value, const Word<T> (&words)[n]) {
  for (const Word<T>& known : words)
    if (known.value == value) return known.text;
  return "unknown";
}

}  // namespace

std::string_view name(TraceEvent::Action action) { return text_of(action, actions); }
std::string_view name(BlockRecord::State state) { return text_of(state, states); }

namespace {

// With the traces that a sink has collected.
class Collector {
 public:
  [[nodiscard]] TraceSink sink() {
    return [this](std::size_t device, const TraceEvent& event) {
      if (traces_.size() <= device) traces_.resize(device + 1);
      traces_[device].push_back(event);
    };
  }
  MemorySnapshot complete(MemorySnapshot snapshot) {
    std::move(traces_.begin(), traces_.end(), snapshot.device_traces.begin());
    return snapshot;
  }

 private:
  std::vector<std::vector<TraceEvent>> traces_;
};

}  // namespace

MemorySnapshot memory_snapshot(const Pickle& pickle, const std::string& file) {
  Collector collector;
  return collector.complete(SnapshotReader(file, collector.sink()).read(pickle));
}

MemorySnapshot read_memory_snapshot(const ByteSource& source, const std::string& file, const TraceSink& sink,
                                    const PickleLimits& limits) {
  SnapshotReader reader(file, sink);
  const PickleConsumer consumer = reader.consumer();
  return reader.read(read_pickle(source, file, limits, &consumer));
}

MemorySnapshot read_memory_snapshot(const std::string& path, const TraceSink& sink, const FileLimits& limits) {
  PlainOrGzip file(path, limits);
  return read_memory_snapshot([&](char* into, std::size_t most) { return file.read(into, most); }, path, sink);
}

MemorySnapshot read_memory_snapshot(const std::string& path, const FileLimits& limits) {
  Collector collector;
  return collector.complete(read_memory_snapshot(path, collector.sink(), limits));
}

}  // namespace tidemark::scenarios
