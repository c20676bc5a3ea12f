#include "scenarios/recordings/trace_replay.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/recordings/memory_snapshot.hpp"
#include "sim/memory/caching_allocator.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::trace_replay_test {
namespace {

using namespace literals;
using Action = TraceEvent::Action;

// -- recordings of the real allocator ---------------------------------------------------------------------------------

/// What the README next to the traces says of a recording. `gaps`: those of the start that are ambiguous.
struct Recording {
  std::string name;
  std::int64_t events, allocs, frees, segment_allocs, segment_frees, segments, blocks;
  Bytes reserved, peak_reserved, peak_allocated;
  std::int64_t gaps;
};
void PrintTo(const Recording& recording, std::ostream* out) { *out << recording.name; }

std::filesystem::path traces() {
  const char* shared = std::getenv("TIDEMARK_SHARED_DATA");
  const std::filesystem::path data =
      shared != nullptr ? shared : std::filesystem::path(TIDEMARK_SOURCE_DIR) / ".." / "shared" / "data";
  return data / "allocator-traces";
}

class RecordedRun : public testing::TestWithParam<Recording> {};

TEST_P(RecordedRun, IsRepeatedExactly) {
  const Recording& expected = GetParam();
  const std::filesystem::path path = traces() / expected.name;
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "needs the recorded traces: TIDEMARK_SHARED_DATA names the folder with allocator-traces/";
  }
  const RecordedTrace trace = recorded_trace(read_memory_snapshot(path.string()), 0, path.string());
  const ReplayReport report = replay(trace);

  EXPECT_TRUE(report.exact());
  EXPECT_EQ(report.first_divergence.value_or(Divergence{}).text, "");
  EXPECT_EQ(report.mismatched_addresses, 0);
  EXPECT_EQ(report.mismatched_segment_events, 0);
  EXPECT_EQ(report.mismatched_frees, 0);
  EXPECT_EQ(report.mismatched_snapshots, 0);
  EXPECT_TRUE(report.same_end);

  EXPECT_EQ(report.events, expected.events);
  EXPECT_EQ(report.allocs, expected.allocs);
  EXPECT_EQ(report.frees, expected.frees);
  EXPECT_EQ(report.segment_allocs, expected.segment_allocs);
  EXPECT_EQ(report.segment_frees, expected.segment_frees);
  EXPECT_EQ(report.segments, expected.segments);
  EXPECT_EQ(report.blocks, expected.blocks);
  EXPECT_EQ(report.reserved, expected.reserved);
  EXPECT_EQ(report.peak_reserved, expected.peak_reserved);
  EXPECT_EQ(report.peak_allocated, expected.peak_allocated);
  EXPECT_EQ(trace.ambiguous_gaps, expected.gaps);
}

// Torch 2.2 to 2.11, from public repositories; the order of the numbers is that of Recording.
const Recording recordings[] = {
    {"native-train-growing.pickle.gz", 19342, 6771, 5894, 783, 0, 1010, 1525,  //
     61'111'009'280_B, 61'111'009'280_B, 55'079'000'576_B, 0},
    {"native-train-emptycache.pickle.gz", 19936, 6769, 5894, 589, 790, 820, 1703,  //
     62'830'673'920_B, 62'830'673'920_B, 55'003'351'552_B, 0},
    {"native-forward-mixed.pickle.gz", 6587, 2702, 1414, 598, 459, 827, 1821,  //
     28'848'422'912_B, 28'848'422'912_B, 28'398'369'792_B, 0},
    {"native-train-midrun.pickle.gz", 22332, 7591, 7370, 1, 0, 400, 1041,  //
     12'660'506'624_B, 12'660'506'624_B, 12'434'494'464_B, 33},
    {"native-train-slackcases.pickle.gz", 19464, 6488, 6488, 0, 0, 999, 1987,  //
     23'842'521'088_B, 23'842'521'088_B, 23'281'500'672_B, 116},
    {"native-finetune.pickle.gz", 10307, 3505, 3325, 152, 0, 215, 1079,  //
     6'471'811'072_B, 6'471'811'072_B, 5'914'094'592_B, 0},
    {"native-small-2025-02.pickle.gz", 5803, 1935, 1926, 7, 0, 10, 54,  //
     134'217'728_B, 134'217'728_B, 110'110'720_B, 0},
    {"parser-with-frames.pickle", 97, 36, 26, 9, 0, 9, 20,  //
     3'781'165'056_B, 3'781'165'056_B, 3'249'144'832_B, 0},
};
// The same for expandable segments: three devices of one run, which begin empty; one of them ends out of memory.
struct ExpandableRecording {
  std::int64_t device, events, allocs, frees, maps, unmaps, ooms, segments, blocks;
  Bytes reserved;
};
const ExpandableRecording expandable_recordings[] = {
    {0, 6445, 2434, 1918, 175, 0, 0, 2, 544, 8'541'700'096_B},
    {1, 596, 199, 175, 40, 6, 1, 8, 32, 84'202'749'952_B},
    {2, 882, 392, 206, 78, 0, 0, 2, 214, 21'883'781'120_B},
};

class ExpandableRun : public testing::TestWithParam<ExpandableRecording> {};

TEST_P(ExpandableRun, IsRepeatedExactly) {
  const ExpandableRecording& expected = GetParam();
  const std::filesystem::path path = traces() / "expandable-3gpu-oom.pickle.gz";
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "needs the recorded traces: TIDEMARK_SHARED_DATA names the folder with allocator-traces/";
  }
  const RecordedTrace trace = recorded_trace(read_memory_snapshot(path.string()), expected.device, path.string());
  EXPECT_TRUE(trace.start.empty());
  EXPECT_TRUE(trace.options.expandable_segments);
  const ReplayReport report = replay(trace);
  EXPECT_EQ(report.first_divergence.value_or(Divergence{}).text, "");
  EXPECT_TRUE(report.exact());
  EXPECT_EQ(report.mismatched_addresses, 0);
  EXPECT_EQ(report.mismatched_segment_events, 0);
  EXPECT_EQ(report.mismatched_frees, 0);

  EXPECT_EQ(report.events, expected.events);
  EXPECT_EQ(report.allocs, expected.allocs);
  EXPECT_EQ(report.frees, expected.frees);
  EXPECT_EQ(report.segment_maps, expected.maps);
  EXPECT_EQ(report.segment_unmaps, expected.unmaps);
  EXPECT_EQ(report.ooms, expected.ooms);
  EXPECT_EQ(report.segments, expected.segments);
  EXPECT_EQ(report.blocks, expected.blocks);
  EXPECT_EQ(report.reserved, expected.reserved);
  EXPECT_EQ(report.peak_reserved, expected.reserved);
}
INSTANTIATE_TEST_SUITE_P(Devices, ExpandableRun, testing::ValuesIn(expandable_recordings),
                         [](const auto& instance) { return "device_" + std::to_string(instance.param.device); });

INSTANTIATE_TEST_SUITE_P(Traces, RecordedRun, testing::ValuesIn(recordings), [](const auto& instance) {
  std::string name = instance.param.name.substr(0, instance.param.name.find('.'));
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

// A recording that is damaged in one place, and what the replay says of it.
class DamagedRun : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::filesystem::path path = traces() / GetParam();
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << "needs the recorded traces: TIDEMARK_SHARED_DATA names the folder with allocator-traces/";
    }
    snapshot_ = read_memory_snapshot(path.string());
  }

  // Some events of that kind of each device.
  template <class Damage>
  void damage_some(Action action, Damage damage) {
    std::mt19937_64 random(5);
    for (std::size_t device = 0; device < snapshot_.device_traces.size(); ++device) {
      std::vector<TraceEvent>& events = snapshot_.device_traces[device];
      for (int tries = 0, done = 0; tries < 1000 && done < 8 && !events.empty(); ++tries) {
        const std::size_t index = random() % events.size();
        if (events[index].action != action) continue;
        ++done;
        const std::vector<TraceEvent> whole = events;
        damage(events, index);
        const ReplayReport report = replay(recorded_trace(snapshot_, static_cast<std::int64_t>(device)));
        events = whole;
        EXPECT_FALSE(report.exact()) << "event " << index << " of device " << device;
        ASSERT_TRUE(report.first_divergence.has_value()) << "event " << index << " of device " << device;
        divergences_.emplace_back(index, *report.first_divergence);
      }
    }
  }

  MemorySnapshot snapshot_;
  std::vector<std::pair<std::size_t, Divergence>> divergences_;  // of what was done to which event
};

TEST_P(DamagedRun, ALostFreeIsNoticed) {
  damage_some(Action::FreeCompleted, [](std::vector<TraceEvent>& events, std::size_t index) {
    events.erase(events.begin() + static_cast<std::ptrdiff_t>(index));
  });
  for (const auto& [index, divergence] : divergences_) EXPECT_GE(divergence.event, index) << divergence.text;
}

TEST_P(DamagedRun, ALostAllocationIsNoticed) {
  damage_some(Action::Alloc, [](std::vector<TraceEvent>& events, std::size_t index) {
    events.erase(events.begin() + static_cast<std::ptrdiff_t>(index));
  });
}

// Where the block is as large as it was, the free that follows shows it, or the block at the end.
TEST_P(DamagedRun, ASizeThatIsLargerBy512BytesIsNoticed) {
  damage_some(Action::Alloc, [](std::vector<TraceEvent>& events, std::size_t index) { events[index].size += 512_B; });
  for (const auto& [index, divergence] : divergences_) EXPECT_GE(divergence.event + 1, index) << divergence.text;
}

INSTANTIATE_TEST_SUITE_P(Traces, DamagedRun,
                         testing::Values("native-train-growing.pickle.gz", "native-train-emptycache.pickle.gz",
                                         "native-forward-mixed.pickle.gz", "native-train-midrun.pickle.gz",
                                         "native-train-slackcases.pickle.gz", "native-finetune.pickle.gz",
                                         "native-small-2025-02.pickle.gz", "expandable-3gpu-oom.pickle.gz",
                                         "parser-with-frames.pickle"),
                         [](const auto& instance) {
                           std::string name = instance.param.substr(0, instance.param.find('.'));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(TraceReplay, RecordedMarksShowTheSameActiveBytes) {
  const std::filesystem::path path = traces() / "native-small-2025-02.pickle.gz";
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "needs the recorded traces: TIDEMARK_SHARED_DATA names the folder with allocator-traces/";
  }
  const ReplayReport report = replay(recorded_trace(read_memory_snapshot(path.string())));
  EXPECT_EQ(report.snapshots, 9);
  EXPECT_EQ(report.mismatched_snapshots, 0);
}

// -- recordings of our own allocator ----------------------------------------------------------------------------------

constexpr StreamPointer compute = 0;
constexpr StreamPointer comm = 0x5581'0000;

/// Runs the allocator and writes down what torch would have.
class Recorder {
 public:
  Address malloc(Bytes size, StreamPointer stream = compute) {
    const BlockId block = std::get<BlockId>(allocator_.malloc(size, StreamId{stream == compute ? 0 : 1}));
    record_segments(stream);
    const Address address = allocator_.address(block);
    record(Action::Alloc, address, size, stream);
    live_[address] = {block, stream};
    return address;
  }
  void free(Address address) {
    const auto [block, stream] = live_.at(address);
    record(Action::FreeRequested, address, allocator_.requested(block), stream);
    record(Action::FreeCompleted, address, allocator_.requested(block), stream);
    allocator_.free(block);
    live_.erase(address);
  }
  void empty_cache() {
    allocator_.empty_cache();
    record_segments(compute);
  }
  void mark() { record(Action::Snapshot, {}, allocator_.allocated(), compute); }

  [[nodiscard]] std::vector<Address> live() const {
    std::vector<Address> addresses;
    for (const auto& [address, block] : live_) addresses.push_back(address);
    return addresses;
  }

  [[nodiscard]] MemorySnapshot snapshot() const {
    MemorySnapshot snapshot;
    snapshot.device_traces = {events_};
    for (const SegmentLayout& segment : allocator_.layout()) {
      SegmentRecord record;
      record.address = segment.address;
      record.size = segment.size;
      record.stream = segment.stream.value == 0 ? compute : comm;
      record.pool = segment.pool;
      for (const BlockLayout& block : segment.blocks) {
        const bool free = block.state == BlockState::Free;
        record.blocks.push_back({block.address, block.size, block.requested,
                                 free ? BlockRecord::State::Inactive : BlockRecord::State::ActiveAllocated, StackId{}});
      }
      snapshot.segments.push_back(std::move(record));
    }
    return snapshot;
  }

 private:
  struct Live {
    BlockId block;
    StreamPointer stream;
  };

  void record(Action action, Address address, Bytes size, StreamPointer stream) {
    TraceEvent event;
    event.action = action;
    event.address = address;
    event.size = size;
    event.stream = stream;
    events_.push_back(event);
  }
  void record_segments(StreamPointer stream) {
    for (const SegmentEvent& event : allocator_.source().take_events()) {
      const bool is_alloc = event.kind == SegmentEvent::Kind::Alloc;
      // The stream of a segment that goes is the one it came for.
      const StreamPointer of = is_alloc ? stream_of_[event.address] = stream : stream_of_.at(event.address);
      record(is_alloc ? Action::SegmentAlloc : Action::SegmentFree, event.address, event.size, of);
    }
  }

  CachingAllocator<LoggedSegments<InventedAddresses>> allocator_;
  std::map<Address, Live> live_;
  std::map<Address, StreamPointer> stream_of_;
  std::vector<TraceEvent> events_;
};

Recorder random_run(std::uint64_t seed, int steps) {
  static constexpr Bytes sizes[] = {100_B, 3_KiB, 1_MiB, 2_MiB, 3_MiB, 9_MiB, 12_MiB, 19_MiB, 20_MiB + 1_B, 33_MiB};
  std::mt19937_64 random(seed);
  Recorder recorder;
  for (int step = 0; step < steps; ++step) {
    const std::vector<Address> live = recorder.live();
    if (live.size() < 40 ? random() % 3 != 0 : random() % 3 == 0) {
      recorder.malloc(sizes[random() % std::size(sizes)], random() % 4 == 0 ? comm : compute);
    } else if (!live.empty()) {
      recorder.free(live[random() % live.size()]);
    }
    if (random() % 200 == 0) recorder.empty_cache();
    if (random() % 100 == 0) recorder.mark();
  }
  return recorder;
}

std::string divergence(const MemorySnapshot& snapshot) {
  return replay(recorded_trace(snapshot)).first_divergence.value_or(Divergence{0, "none"}).text;
}

TEST(TraceReplay, RepeatsWhatTheAllocatorItselfDid) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const ReplayReport report = replay(recorded_trace(random_run(seed, 2000).snapshot()));
    EXPECT_TRUE(report.exact()) << report.first_divergence.value_or(Divergence{}).text;
    EXPECT_GT(report.segment_frees, 0);
    EXPECT_GT(report.snapshots, 0);
  }
}

TEST(TraceReplay, BeginsAnywhere) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    MemorySnapshot snapshot = random_run(seed, 600).snapshot();
    std::vector<TraceEvent>& events = snapshot.device_traces[0];
    const std::vector<TraceEvent> whole = events;
    for (std::size_t lost = 0; lost < whole.size(); lost += 7) {
      // A ring buffer lost the beginning. It does not lose half of an empty_cache, for the sake of this test.
      if (whole[lost].action == Action::SegmentFree) continue;
      events.assign(whole.begin() + static_cast<std::ptrdiff_t>(lost), whole.end());
      const ReplayReport report = replay(recorded_trace(snapshot));
      EXPECT_TRUE(report.exact()) << "seed " << seed << ", " << lost
                                  << " events lost: " << report.first_divergence.value_or(Divergence{}).text;
    }
  }
}

// A 20 MiB segment with 19.5 MiB + 512 B asked for: the rest of it is slack. Then a recording begins.
TEST(TraceReplay, SlackOfABlockFromBeforeIsItsOwnIfTooSmallToSplit) {
  Recorder recorder;
  const Address block = recorder.malloc(19_MiB);
  const std::size_t begin = recorder.snapshot().device_traces[0].size();
  recorder.mark();
  recorder.free(block);
  MemorySnapshot snapshot = recorder.snapshot();
  std::vector<TraceEvent>& events = snapshot.device_traces[0];
  events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(begin));

  const RecordedTrace trace = recorded_trace(snapshot);
  ASSERT_EQ(trace.start.size(), 1U);
  EXPECT_EQ(trace.start[0].blocks, (std::vector<BlockLayout>{{block, 20_MiB, 19_MiB, BlockState::Allocated}}));
  EXPECT_EQ(trace.ambiguous_gaps, 0);
  EXPECT_TRUE(replay(trace).exact());
}

TEST(TraceReplay, AnAllocationInTheGapShowsWhereTheSlackEnds) {
  Recorder recorder;
  const Address a = recorder.malloc(5_MiB);
  const Address b = recorder.malloc(5_MiB);
  recorder.malloc(2_MiB);
  recorder.free(a);
  const Address slack = recorder.malloc(4_MiB + 512_B);  // takes the 5 MiB whole
  EXPECT_EQ(slack, a);
  recorder.free(b);
  const std::size_t begin = recorder.snapshot().device_traces[0].size();
  const Address in_gap = recorder.malloc(3_MiB);
  EXPECT_EQ(in_gap, b);
  recorder.free(slack);
  MemorySnapshot snapshot = recorder.snapshot();
  std::vector<TraceEvent>& events = snapshot.device_traces[0];
  events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(begin));

  const RecordedTrace trace = recorded_trace(snapshot);
  EXPECT_EQ(trace.ambiguous_gaps, 1);
  EXPECT_EQ(trace.decided_gaps, 1);
  ASSERT_EQ(trace.start.size(), 1U);
  EXPECT_EQ(trace.start[0].blocks[0], (BlockLayout{a, 5_MiB, 4_MiB + 512_B, BlockState::Allocated}));
  EXPECT_TRUE(replay(trace).exact());
}

TEST(TraceReplay, PendingFreesCountAsAllocated) {
  Recorder recorder;
  recorder.malloc(3_MiB, comm);
  MemorySnapshot snapshot = recorder.snapshot();
  snapshot.segments[0].blocks[0].state = BlockRecord::State::ActivePendingFree;
  TraceEvent requested = snapshot.device_traces[0].back();
  requested.action = Action::FreeRequested;
  snapshot.device_traces[0].push_back(requested);
  EXPECT_EQ(divergence(snapshot), "none");
}

TEST(TraceReplay, StreamsGiveBackInTheOrderOfTheirPointers) {
  Recorder recorder;
  recorder.free(recorder.malloc(30_MiB, comm));
  recorder.free(recorder.malloc(40_MiB, compute));
  recorder.empty_cache();
  MemorySnapshot snapshot = recorder.snapshot();
  EXPECT_EQ(divergence(snapshot), "none");
  for (TraceEvent& event : snapshot.device_traces[0]) event.stream = event.stream == compute ? comm : compute;
  EXPECT_EQ(divergence(snapshot),
            "event 8 (segment_free of 41943040 B at 0x7f0001e00000): the next one that the allocator gives back has "
            "31457280 B at 0x7f0000000000");
}

// -- recordings that do not fit ---------------------------------------------------------------------------------------

// event 0 segment_alloc, 1 alloc 4 MiB, 2 alloc 5 MiB, 3-4 free of the first, 5 alloc 3 MiB into its place, 6
// segment_alloc, 7 alloc 30 MiB, 8-9 its free, 10 segment_free
MemorySnapshot small_run() {
  Recorder recorder;
  const Address a = recorder.malloc(4_MiB);
  recorder.malloc(5_MiB);
  recorder.free(a);
  recorder.malloc(2_MiB);
  recorder.free(recorder.malloc(30_MiB));
  recorder.empty_cache();
  return recorder.snapshot();
}

MemorySnapshot without(MemorySnapshot snapshot, std::size_t index) {
  std::vector<TraceEvent>& events = snapshot.device_traces[0];
  events.erase(events.begin() + static_cast<std::ptrdiff_t>(index));
  return snapshot;
}

TEST(TraceReplay, NamesTheEventAfterALostFree) {
  ASSERT_EQ(divergence(small_run()), "none");
  MemorySnapshot snapshot = without(without(small_run(), 4), 3);
  EXPECT_EQ(divergence(snapshot),
            "event 3 (alloc of 2097152 B at 0x7f0000000000): the allocator chose the block at 0x7f0000900000");
  const ReplayReport report = replay(recorded_trace(snapshot));
  EXPECT_EQ(report.first_divergence->event, 3U);
  EXPECT_EQ(report.mismatched_addresses, 1);
  EXPECT_FALSE(report.same_end);
  EXPECT_FALSE(report.exact());
}

TEST(TraceReplay, NamesTheEventAfterALostSegmentAlloc) {
  const MemorySnapshot kept = without(small_run(), 10);  // else the segment could be one from before
  EXPECT_EQ(divergence(without(kept, 6)),
            "event 6 (alloc of 31457280 B at 0x7f0001400000): the allocator asks for a segment of 31457280 B, the "
            "recording has none");
}

TEST(TraceReplay, NamesTheSegmentThatWasNotGivenBack) {
  EXPECT_EQ(divergence(without(small_run(), 10)),
            "after the last event: only the allocator has the segment of 31457280 B at 0x7f0001400000");
}

TEST(TraceReplay, NamesTheSegmentThatWasNotAskedFor) {
  MemorySnapshot snapshot = small_run();
  TraceEvent extra = snapshot.device_traces[0][0];
  extra.address = {0x7e00'0000'0000};
  snapshot.device_traces[0].insert(snapshot.device_traces[0].begin() + 5, extra);
  EXPECT_EQ(divergence(snapshot),
            "event 5 (segment_alloc of 20971520 B at 0x7e0000000000): the allocator did not ask for it");
}

TEST(TraceReplay, NamesTheEventAfterAChangedSize) {
  MemorySnapshot smaller = small_run();
  smaller.device_traces[0][1].size -= 512_B;  // the first alloc: what follows it moves down
  EXPECT_EQ(divergence(smaller),
            "event 2 (alloc of 5242880 B at 0x7f0000400000): the allocator chose the block at 0x7f00003ffe00");
  MemorySnapshot larger = small_run();
  larger.device_traces[0][7].size += 512_B;  // a whole segment: 32 MiB would be asked for
  EXPECT_EQ(divergence(larger),
            "event 6 (segment_alloc of 31457280 B at 0x7f0001400000): the allocator asks for a segment of 33554432 B");
}

TEST(TraceReplay, NamesAFreeThatDoesNotFit) {
  MemorySnapshot other_size = small_run();
  other_size.device_traces[0][3].size += 512_B;
  EXPECT_EQ(divergence(other_size),
            "event 3 (free_requested of 4194816 B at 0x7f0000000000): the block there was requested with 4194304 B");
  MemorySnapshot elsewhere = small_run();
  elsewhere.device_traces[0][8].address = {42};
  EXPECT_EQ(divergence(elsewhere), "event 8 (free_requested of 31457280 B at 0x2a): nothing was allocated there");
}

TEST(TraceReplay, NamesTheMarkThatDoesNotFit) {
  Recorder recorder;
  recorder.malloc(3_MiB);
  recorder.mark();
  MemorySnapshot snapshot = recorder.snapshot();
  snapshot.device_traces[0].back().size += 512_B;
  EXPECT_EQ(divergence(snapshot), "event 2 (snapshot of 3146240 B at 0x0): the allocator has 3145728 B active");
}

// Whatever is done to a recording, the answer is a report.
TEST(TraceReplay, EveryDamageIsReported) {
  const MemorySnapshot whole = random_run(3, 400).snapshot();
  const std::size_t events = whole.device_traces[0].size();
  std::mt19937_64 random(11);
  int silent = 0;
  for (int round = 0; round < 600; ++round) {
    MemorySnapshot damaged = whole;
    TraceEvent& event = damaged.device_traces[0][random() % events];
    const TraceEvent before = event;
    switch (random() % 4) {
      case 0:
        event.address = damaged.device_traces[0][random() % events].address;
        break;
      case 1:
        event.size = damaged.device_traces[0][random() % events].size + 1_B;
        break;
      case 2:
        event.action = damaged.device_traces[0][random() % events].action;
        break;
      default:
        std::swap(event, damaged.device_traces[0][random() % events]);
    }
    const bool harmless = event == before;
    const ReplayReport report = replay(recorded_trace(damaged));
    if (report.exact() && !harmless) ++silent;
    EXPECT_EQ(report.exact(), !report.first_divergence.has_value());
  }
  // Some damage makes another recording that is as good: two frees of which the order does not matter, say.
  EXPECT_LT(silent, 60);
}

// -- snapshots that are no recordings ---------------------------------------------------------------------------------

std::string error(const MemorySnapshot& snapshot, std::int64_t device = 0) {
  try {
    static_cast<void>(recorded_trace(snapshot, device, "run.pickle"));
    return "no error";
  } catch (const InputError& e) {
    return e.problems().at(0).message;
  }
}

TEST(RecordedTrace, HasTheSettingsItWasRecordedWith) {
  MemorySnapshot snapshot = small_run();
  EXPECT_EQ(recorded_trace(snapshot).options, AllocatorOptions{});
  snapshot.settings = AllocatorSettings{.text = "max_non_split_rounding_mb:40,max_split_size_mb:128",
                                        .max_split_size = 100_MiB};  // what holds, whatever was set last
  snapshot.settings->roundup_divisions[3] = 4;
  AllocatorOptions expected{.max_split_size = 100_MiB, .max_non_split_rounding = 40_MiB};
  expected.roundup_divisions[3] = 4;
  EXPECT_EQ(recorded_trace(snapshot).options, expected);
  snapshot.settings->text = "max_split_size_mb:high";
  EXPECT_EQ(error(snapshot), "max_split_size_mb takes a whole number, not \"high\"");
}

TEST(RecordedTrace, SaysThatAMemoryFractionIsNotRecorded) {
  MemorySnapshot snapshot = small_run();
  snapshot.settings = AllocatorSettings{.text = "per_process_memory_fraction:0.5", .max_split_size = {}};
  const RecordedTrace trace = recorded_trace(snapshot);
  EXPECT_EQ(trace.options, AllocatorOptions{});
  ASSERT_EQ(trace.remarks.size(), 1U);
  EXPECT_EQ(trace.remarks[0].substr(0, 58), "a memory fraction is a limit that the snapshot does not st");
}

TEST(RecordedTrace, RefusesSegmentsThatCannotBe) {
  EXPECT_EQ(error(small_run(), 3), "there is no trace of device 3");
  EXPECT_EQ(error({}), "there is no trace of device 0");
  MemorySnapshot snapshot = small_run();
  snapshot.segments[0].blocks[1].size -= 512_B;
  EXPECT_EQ(error(snapshot), "the blocks of the segment at 139637976727552 do not tile it");
  snapshot = small_run();
  snapshot.segments.push_back(snapshot.segments[0]);
  EXPECT_EQ(error(snapshot), "the segments at 139637976727552 and 139637976727552 overlap");
  snapshot = small_run();
  snapshot.device_traces[0].resize(20, snapshot.device_traces[0][0]);
  for (TraceEvent& event : snapshot.device_traces[0]) event.size = Bytes{(1LL << 60) - 1};
  EXPECT_EQ(error(snapshot), "the sizes add up to more than 2^62 bytes");
}

TEST(RecordedTrace, OtherDevicesPlayNoPart) {
  MemorySnapshot snapshot = small_run();
  SegmentRecord other = snapshot.segments[0];
  other.device = 1;
  snapshot.segments.push_back(other);
  snapshot.device_traces.emplace_back();
  EXPECT_EQ(error(snapshot), "no error");
  EXPECT_EQ(divergence(snapshot), "none");
}

}  // namespace
}  // namespace tidemark::tests::trace_replay_test
