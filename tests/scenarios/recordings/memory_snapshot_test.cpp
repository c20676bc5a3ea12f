#include "scenarios/recordings/memory_snapshot.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/recordings/pickle/gzip.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::memory_snapshot_test {
namespace {

using namespace literals;
using namespace std::string_literals;

std::string corpus(const std::string& name) {
  return (std::filesystem::path(TIDEMARK_SOURCE_DIR) / "tests/fuzz/corpus/pickle" / name).string();
}

/// A file that is gone when the test is.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view content)
      : path_((std::filesystem::path(testing::TempDir()) /
               (std::string("tidemark_") + testing::UnitTest::GetInstance()->current_test_info()->name()))
                  .string()) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Python: gzip.compress(pickle.dumps([1, 2]), mtime=0)
const std::string gzipped =
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x6b\x60\x99\xca\xc9\x00\x01\xb1\x53\x34\xbc\x19\xbd\x99\x52\xf5\x00\x51"
    "\xa8"
    "\x7f\x8f\x14\x00\x00\x00"s;
const std::string plain =
    "\x80\x04\x95\x09\0\0\0\0\0\0\0]\x94(K\x01K\x02"
    "e."s;

template <class Action>
std::string error(Action action) {
  try {
    action();
    return "no error";
  } catch (const InputError& e) {
    std::string all;
    for (const Problem& problem : e.problems()) all.append(all.empty() ? "" : "; ").append(problem.message);
    return all;
  }
}

// Of a pickle made of these opcodes.
std::string snapshot_error(const std::string& opcodes) {
  return error([&] { memory_snapshot(read_pickle(std::string("\x80\x04").append(opcodes).append("."))); });
}

std::string key(std::string_view word) {
  std::string opcodes = "\x8c";
  opcodes.push_back(static_cast<char>(word.size()));
  return opcodes.append(word);
}

TEST(Gzip, ReadsPlainAndCompressedFiles) {
  EXPECT_EQ(read_plain_or_gzip(TemporaryFile(gzipped).path()), plain);
  EXPECT_EQ(read_plain_or_gzip(TemporaryFile(plain).path()), plain);
  EXPECT_EQ(read_plain_or_gzip(TemporaryFile("").path()), "");
}

TEST(Gzip, RefusesMoreThanAllowed) {
  const TemporaryFile file(gzipped);
  EXPECT_EQ(read_plain_or_gzip(file.path(), {.content = 20_B}), plain);
  EXPECT_EQ(error([&] { read_plain_or_gzip(file.path(), {.content = 19_B}); }), "holds more than the 19 bytes allowed");
}

TEST(Gzip, RefusesDamagedFiles) {
  for (std::size_t length = 3; length < gzipped.size(); ++length) {
    const TemporaryFile cut(std::string_view(gzipped).substr(0, length));
    EXPECT_THROW(read_plain_or_gzip(cut.path()), InputError) << "cut to " << length;
  }
  std::string damaged = gzipped;
  damaged[gzipped.size() - 6] ^= 1;  // in the checksum
  const TemporaryFile file(damaged);
  EXPECT_EQ(error([&] { read_plain_or_gzip(file.path()); }).substr(0, 12), "cannot read:");
}

TEST(Gzip, SaysWhyThereIsNothingToRead) {
  EXPECT_EQ(error([] { read_plain_or_gzip("no/such/file"); }), "there is no such file");
  EXPECT_EQ(error([] { read_plain_or_gzip(testing::TempDir()); }), "is not a regular file");
}

TEST(Gzip, RefusesWhatUnpacksToFillMemory) {
  const TemporaryFile file("");
  const gzFile packed = gzopen(file.path().c_str(), "wb9");
  ASSERT_NE(packed, nullptr);
  const std::string zeros(1 << 20, '\0');
  for (int i = 0; i < 20; ++i) ASSERT_EQ(gzwrite(packed, zeros.data(), 1 << 20), 1 << 20);
  ASSERT_EQ(gzclose(packed), Z_OK);
  const std::string refused = error([&] { read_plain_or_gzip(file.path()); });
  EXPECT_EQ(refused.substr(0, 8), "at byte ");
  EXPECT_NE(refused.find(": unpacks to more than 256 times its size"), std::string::npos) << refused;
  EXPECT_EQ(read_plain_or_gzip(file.path(), {.expansion = 1100}).size(), 20U << 20);
}

TEST(MemorySnapshot, ReadsWhatTorchWrites) {
  const MemorySnapshot snapshot = read_memory_snapshot(corpus("snapshot-protocol4.pickle"));
  ASSERT_EQ(snapshot.segments.size(), 1U);
  const SegmentRecord& segment = snapshot.segments[0];
  EXPECT_EQ(segment.address, Address{1LL << 32});
  EXPECT_EQ(segment.size, 2_MiB);
  EXPECT_EQ(segment.pool, PoolKind::Small);
  ASSERT_EQ(segment.blocks.size(), 2U);
  EXPECT_EQ(segment.blocks[0].state, BlockRecord::State::ActiveAllocated);
  EXPECT_EQ(segment.blocks[0].requested, 100_B);
  EXPECT_EQ(segment.blocks[1].address, Address{(1LL << 32) + 512});

  ASSERT_EQ(snapshot.device_traces.size(), 1U);
  const std::vector<TraceEvent>& events = snapshot.device_traces[0];
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].action, TraceEvent::Action::SegmentAlloc);
  EXPECT_EQ(events[0].time_us, 1783874667632574);
  EXPECT_EQ(events[1].size, 100_B);
  EXPECT_EQ(events[2].action, TraceEvent::Action::Snapshot);

  ASSERT_TRUE(snapshot.settings.has_value());
  EXPECT_EQ(snapshot.settings->max_split_size, std::nullopt);
  EXPECT_FALSE(snapshot.settings->expandable_segments);
  EXPECT_EQ(snapshot.settings->roundup_divisions, (std::array<std::uint64_t, 16>{}));
  ASSERT_EQ(snapshot.annotations.size(), 1U);
  EXPECT_EQ(snapshot.annotations[0].name, "Optimizer.step#AdamW.step");
}

TEST(MemorySnapshot, SharesStacks) {
  const MemorySnapshot snapshot = read_memory_snapshot(corpus("snapshot-protocol4.pickle"));
  ASSERT_EQ(snapshot.stacks.size(), 1U) << "one list, in three places";
  const StackId stack = snapshot.segments[0].blocks[0].stack;
  EXPECT_EQ(stack, snapshot.device_traces[0][1].stack);
  EXPECT_FALSE(snapshot.segments[0].stack.valid());
  ASSERT_EQ(snapshot.stacks[stack.index()].size(), 2U);
  EXPECT_EQ(snapshot.frames[snapshot.stacks[stack.index()][1].index()], (StackFrame{"forward", "model.py", 42}));
}

TEST(MemorySnapshot, EveryProtocolSaysTheSame) {
  const MemorySnapshot four = read_memory_snapshot(corpus("snapshot-protocol4.pickle"));
  for (const char* other : {"snapshot-protocol2.pickle", "snapshot-protocol3.pickle", "snapshot-protocol5.pickle"}) {
    EXPECT_EQ(read_memory_snapshot(corpus(other)), four) << other;
  }
}

TEST(MemorySnapshot, OldFilesHaveNoTimesNorBlockAddresses) {
  const MemorySnapshot old = read_memory_snapshot(corpus("snapshot-old.pickle"));
  EXPECT_FALSE(old.settings.has_value());
  EXPECT_EQ(old.device_traces[0][1].time_us, std::nullopt);
  ASSERT_EQ(old.segments[0].blocks.size(), 2U);
  EXPECT_EQ(old.segments[0].blocks[1].address, Address{(1LL << 40) + (4 << 20)}) << "the sizes before it";
  EXPECT_EQ(old.segments[0].blocks[0].requested, 4_MiB);
}

TEST(MemorySnapshot, MayBeABareListOfSegments) {
  const MemorySnapshot bare = read_memory_snapshot(corpus("segments-only.pickle"));
  EXPECT_EQ(bare.segments, read_memory_snapshot(corpus("snapshot-old.pickle")).segments);
  EXPECT_TRUE(bare.device_traces.empty());
}

// The same bytes, as the values of a pickle and event by event as they come.
std::pair<MemorySnapshot, MemorySnapshot> whole_and_streamed(const std::string& bytes) {
  std::vector<std::vector<TraceEvent>> traces;
  std::string_view left = bytes;
  MemorySnapshot streamed = read_memory_snapshot(
      [&](char* into, std::size_t most) {
        const std::size_t n = left.copy(into, most);
        left.remove_prefix(n);
        return n;
      },
      "",
      [&](std::size_t device, const TraceEvent& event) {
        traces.resize(std::max(traces.size(), device + 1));
        traces[device].push_back(event);
      });
  std::move(traces.begin(), traces.end(), streamed.device_traces.begin());
  return {memory_snapshot(read_pickle(bytes)), std::move(streamed)};
}

// {"device_traces": [[events]], and what else}
std::string traces_of(const std::string& events, const std::string& others = "") {
  return "\x80\x04}(" + key("device_traces") + "](](" + events + "ee" + others + "u.";
}
std::string alloc(const std::string& frames) {
  return "}(" + key("action") + key("alloc") + key("addr") + "K\x01" + key("size") + "K\x01" + key("frames") + frames +
         "u";
}

TEST(MemorySnapshot, FramesOfEventsMayBeUsedElsewhere) {
  std::ifstream file(corpus("frames-are-segments.pickle"), std::ios::binary);
  const auto [whole, streamed] = whole_and_streamed({std::istreambuf_iterator<char>(file), {}});
  ASSERT_EQ(whole.segments.size(), 1U);
  EXPECT_EQ(streamed.segments, whole.segments);
  EXPECT_EQ(streamed.device_traces, whole.device_traces);
}

TEST(MemorySnapshot, EqualTracebacksAreOneAndTheSame) {
  // Three lists with one frame, of which the second is then used as what it is not: the frames of a block.
  const std::string frame = "}(" + key("name") + key("f") + "u\x94";
  const std::string block = "}(" + key("size") + "K\x01" + key("state") + key("inactive") + key("frames") + "h\x02u";
  const std::string segment = "](}(" + key("address") + "K\0"s + key("total_size") + "K\x01" + key("segment_type") +
                              key("small") + key("blocks") + "](" + block + "eue";
  const auto [whole, streamed] = whole_and_streamed(traces_of(
      alloc("](" + frame + "e\x94") + alloc("](h\0e\x94"s) + alloc("](h\0e\x94"s), key("segments") + segment));
  ASSERT_EQ(streamed.stacks.size(), 1U);
  EXPECT_EQ(streamed.stacks, whole.stacks);
  EXPECT_EQ(streamed.segments, whole.segments);
  EXPECT_TRUE(streamed.segments[0].blocks[0].stack.valid());
}

TEST(MemorySnapshot, EventsMayBeWrittenInAnyWay) {
  const std::string entries = key("action") + key("alloc") + key("addr") + "K\x01" + key("size") + "K\x01";
  for (const std::string& event : {"}(" + entries + "u", "(" + entries + "d", "(" + entries + key("x") + "}d",
                                   "K\x01"
                                   "0}(" +
                                       entries + "u"}) {
    SCOPED_TRACE(event);
    const auto [whole, streamed] = whole_and_streamed(traces_of(event + event));
    EXPECT_EQ(streamed.device_traces, whole.device_traces);
    EXPECT_EQ(streamed.device_traces.at(0).size(), 2U);
  }
}

TEST(MemorySnapshot, WhatAnEventHoldsStaysAsItIs) {
  const auto refusal = [](const std::string& bytes) { return error([&] { whole_and_streamed(bytes); }); };
  const std::string later = " what a dict in device_traces holds is changed after that was complete";
  // A list of frames, and a frame, that grow once the event is there.
  EXPECT_NE(refusal(traces_of(alloc("]\x94"), key("x") + "h\0Na"s)).find(later), std::string::npos);
  EXPECT_NE(refusal(traces_of(alloc("](}\x94"
                                    "e"),
                              key("x") + "h\0"s + key("name") + key("f") + "s"s))
                .find(later),
            std::string::npos);
}

TEST(MemorySnapshot, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(snapshot_error("K\x01"), "snapshot is an integer, not a dict");
  EXPECT_EQ(snapshot_error("}"), "snapshot has neither segments nor device_traces");
  EXPECT_EQ(snapshot_error("}" + key("segments") + "}s"), "snapshot.segments is a dict, not a list");
  EXPECT_EQ(snapshot_error("]Na"), "snapshot[0] is None, not a dict");
  EXPECT_EQ(
      snapshot_error("]}(" + key("address") + key("x") + key("total_size") + "K\0"s + key("segment_type") +
                     key("medium") + "ua"),
      "snapshot[0].address is a text, not an integer; snapshot[0].total_size 0 is not a size of memory on a device; "
      "snapshot[0].segment_type \"medium\" is not known");
  EXPECT_EQ(snapshot_error("}" + key("device_traces") + "]]}(" + key("action") + key("alloc") + key("addr") +
                           "J\xff\xff\xff\xff" + "uaas"),
            "snapshot.device_traces[0][0].addr -1 is not an address on a device; "
            "snapshot.device_traces[0][0].size is missing");
  for (const std::string& share : {"G\x7f\xf8\0\0\0\0\0\0"s, "G\xbf\xf0\0\0\0\0\0\0"s, "K\x02"s})  // nan, -1, 2
    EXPECT_NE(snapshot_error("}(" + key("segments") + "]" + key("allocator_settings") + "}" +
                             key("garbage_collection_threshold") + share + "su")
                  .find("snapshot.allocator_settings.garbage_collection_threshold "),
              std::string::npos);
}

TEST(MemorySnapshot, StopsAfterTwentyProblems) {
  std::string segments = "](";
  for (int i = 0; i < 100; ++i) segments += 'N';
  try {
    memory_snapshot(read_pickle(std::string("\x80\x04").append(segments).append("e.")));
    FAIL();
  } catch (const InputError& e) {
    EXPECT_EQ(e.problems().size(), 20U);
  }
}

TEST(MemorySnapshot, SharedRecordsDoNotMultiplyTheWork) {
  // 30,000 times the same list of 30,000 times the same event.
  std::string event = "}(";
  event.append(key("action")).append(key("alloc")).append(key("addr")).append("K\x01");
  event.append(key("size")).append("K\x01u\x94");
  std::string events = "](";
  for (int i = 0; i < 30'000; ++i) events.append("h\0", 2);
  std::string traces = "](";
  for (int i = 0; i < 30'000; ++i) traces.append("h\x01", 2);
  // The dict of the snapshot holds the event and the list under keys of no meaning, to have them memoised.
  const std::string snapshot =
      "}(" + key("a") + event + key("b") + events + "e\x94" + key("device_traces") + traces + "eu";
  EXPECT_EQ(snapshot_error(snapshot), "snapshot refers to the same lists and texts more often than any snapshot does");
}

}  // namespace
}  // namespace tidemark::tests::memory_snapshot_test
