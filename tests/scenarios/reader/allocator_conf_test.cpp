#include "scenarios/environment/allocator_conf.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::allocator_conf_test {
namespace {

using namespace literals;

AllocatorOptions options(std::string_view text) {
  const AllocatorConf conf = parse_allocator_conf(text);
  EXPECT_TRUE(conf.problems.empty()) << text << ": " << conf.problems.front().message;
  return conf.options;
}

// "17: message", one line each.
std::string problems(std::string_view text) {
  std::string lines;
  for (const AllocatorConfProblem& problem : parse_allocator_conf(text).problems)
    lines += (lines.empty() ? "" : "\n") + std::to_string(problem.at) + ": " + problem.message;
  return lines;
}

TEST(AllocatorConf, NothingIsTheDefault) {
  EXPECT_EQ(options(""), AllocatorOptions{});
  EXPECT_EQ(options("  "), AllocatorOptions{});
  EXPECT_EQ(options("backend:native"), AllocatorOptions{});
}

TEST(AllocatorConf, ReadsWhatUsersWrite) {
  EXPECT_EQ(options("expandable_segments:True").expandable_segments, true);
  EXPECT_EQ(options("max_split_size_mb:128").max_split_size, 128_MiB);
  const AllocatorOptions several =
      options("garbage_collection_threshold:0.6,max_split_size_mb:512,per_process_memory_fraction:0.75");
  EXPECT_EQ(several.garbage_collection_threshold, 0.6);
  EXPECT_EQ(several.max_split_size, 512_MiB);
  EXPECT_EQ(several.memory_fraction, 0.75);
  EXPECT_EQ(options("max_non_split_rounding_mb:40").max_non_split_rounding, 40_MiB);
  EXPECT_EQ(options(" expandable_segments : True , max_split_size_mb : 64 , ").max_split_size, 64_MiB)
      << "white space and a last comma";
  EXPECT_EQ(options("max_split_size_mb:64,max_split_size_mb:128").max_split_size, 128_MiB) << "the last one counts";
}

// parseLargeSegmentSize comes first, and is where the rounding begins.
TEST(AllocatorConf, TheLargeSegmentSetsTheLeastOfOthers) {
  const AllocatorOptions read = options("max_split_size_mb:30,large_segment_size_mb:30");
  EXPECT_EQ(read.large_segment, 30_MiB);
  EXPECT_EQ(read.max_non_split_rounding, 30_MiB);
  EXPECT_EQ(options("max_split_size_mb:12,large_segment_size_mb:12").max_split_size, 12_MiB);
  EXPECT_EQ(problems("max_split_size_mb:28,large_segment_size_mb:30"),
            "18: CachingAllocator option max_split_size_mb too small, must be >= 30");
  EXPECT_EQ(problems("large_segment_size_mb:10"), "22: CachingAllocator option large_segment_size_mb must be > 10 MB");
}

using Divisions = std::array<std::uint64_t, 16>;

// parseRoundUpPower2Divisions
TEST(AllocatorConf, DivisionsAreOneNumberOrAList) {
  Divisions all;
  all.fill(8);
  EXPECT_EQ(options("roundup_power2_divisions:8").roundup_divisions, all);
  EXPECT_EQ(options("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]").roundup_divisions,
            (Divisions{1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8}))
      << "the first one holds below it too, > above the last";
  EXPECT_EQ(options("roundup_power2_divisions:[64:8,256:4]").roundup_divisions,
            (Divisions{8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 0, 0, 0, 0, 0, 0}))
      << "what is between and above is not rounded";
  EXPECT_EQ(options("roundup_power2_divisions:[1:2,1048576:4]").roundup_divisions[15], 4U) << "clamped to 32 GiB";
  EXPECT_EQ(options("roundup_power2_divisions:[256:0],expandable_segments:True").expandable_segments, true);
}

TEST(AllocatorConf, NumbersAreReadAsPyTorchReadsThem) {
  EXPECT_EQ(options("max_split_size_mb:128MB").max_split_size, 128_MiB) << "stoull stops at the letters";
  EXPECT_EQ(options("max_split_size_mb:-1").max_split_size, AllocatorOptions::unlimited);
  EXPECT_EQ(options("max_split_size_mb:99999999999999").max_split_size, AllocatorOptions::unlimited);
  EXPECT_EQ(options("garbage_collection_threshold:5e-1").garbage_collection_threshold, 0.5);
}

TEST(AllocatorConf, RefusesWhatPyTorchRefuses) {
  EXPECT_EQ(problems("max_split_size_mb:16"), "18: CachingAllocator option max_split_size_mb too small, must be >= 20");
  EXPECT_EQ(problems("max_non_split_rounding_mb:19"),
            "26: CachingAllocator option max_non_split_rounding_mb too small, must be >= 20");
  for (const std::string value : {"0", "1", "1.5", "-0.1", "nan"})
    EXPECT_EQ(problems("garbage_collection_threshold:" + value),
              "29: garbage_collect_threshold is invalid, set it in (0.0, 1.0)");
  EXPECT_EQ(problems("per_process_memory_fraction:1.01"),
            "28: per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
  EXPECT_EQ(problems("expandable_segments:true"),
            "20: Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'");
  EXPECT_EQ(problems("roundup_power2_divisions:3"), "25: For roundups, the divisions has to be power of 2");
  EXPECT_EQ(problems("roundup_power2_divisions:0"), "25: For roundups, the divisions has to be power of 2");
  EXPECT_EQ(problems("roundup_power2_divisions:[256:3]"),
            "30: For roundups, the divisions has to be power of 2 or 0 to disable roundup");
  EXPECT_EQ(problems("roundup_power2_divisions:[100:4]"), "26: For roundups, the intervals have to be power of 2");
  EXPECT_EQ(problems("backend:cuda"), "8: Unknown allocator backend, options are native and cudaMallocAsync");
  EXPECT_EQ(problems("pinned_num_register_threads:3"), "28: Number of register threads has to be power of 2, got 3");
  EXPECT_EQ(problems("pinned_num_register_threads:256"),
            "28: Number of register threads should be less than or equal to 128, got 256");
  EXPECT_EQ(problems("pinned_reserve_segment_size_mb:0"), "31: Pinned reserve segment size has to be greater than 0");
}

TEST(AllocatorConf, SyntaxErrorsEndTheReading) {
  EXPECT_EQ(problems("max_split_size_mib:128"), "0: Unrecognized key 'max_split_size_mib' in CUDA allocator config.");
  EXPECT_EQ(problems("max_split_size_mb=128"), "0: Unrecognized key 'max_split_size_mb=128' in CUDA allocator config.");
  EXPECT_EQ(problems("max_split_size_mb"), "17: Error parsing CachingAllocator settings, expected :");
  EXPECT_EQ(problems("max_split_size_mb:"), "18: Error, expecting max_split_size_mb value");
  EXPECT_EQ(problems("max_split_size_mb:big"), "18: max_split_size_mb takes a whole number, not \"big\"");
  EXPECT_EQ(problems("garbage_collection_threshold:[1]"), "29: garbage_collection_threshold takes a number, not \"[\"");
  EXPECT_EQ(problems("backend:native:True"), "14: Error parsing CachingAllocator settings, expected ,");
  EXPECT_EQ(problems("roundup_power2_divisions:[256:1"), "31: Error, expecting roundup_power2_divisions value");
  EXPECT_EQ(problems("roundup_power2_divisions:[256:1 512:2]"),
            "30: For roundups, the divisions has to be power of 2 or 0 to disable roundup\n"
            "35: Error parsing CachingAllocator settings, expected ,")
      << "white space separates nothing: 1512:2";
  EXPECT_EQ(problems(",backend:native"), "0: Unrecognized key ',' in CUDA allocator config.");
}

TEST(AllocatorConf, AllWrongValuesAreReported) {
  EXPECT_EQ(problems("max_split_size_mb:1,garbage_collection_threshold:2,expandable_segments:yes"),
            "18: CachingAllocator option max_split_size_mb too small, must be >= 20\n"
            "49: garbage_collect_threshold is invalid, set it in (0.0, 1.0)\n"
            "71: Expected 'True' or 'False' at index 10 in ConfigTokenizer but got 'yes'");
}

TEST(AllocatorConf, SaysWhatHasNoEffect) {
  EXPECT_EQ(parse_allocator_conf("release_lock_on_cudamalloc:True").remarks,
            (std::vector<std::string>{"release_lock_on_cudamalloc has no effect here: it changes how long cudaMalloc "
                                      "blocks other threads, not its requests"}));
  for (const std::string_view text : {"pinned_use_cuda_host_register:True", "pinned_use_background_threads:True",
                                      "pinned_num_register_threads:8", "pinned_reserve_segment_size_mb:16",
                                      "graph_capture_record_stream_reuse:True", "garbage_collection_threshold:0.8"})
    EXPECT_EQ(parse_allocator_conf(text).remarks.size(), 1U) << text;
  EXPECT_TRUE(parse_allocator_conf("garbage_collection_threshold:0.8,per_process_memory_fraction:0.9").remarks.empty());
}

TEST(AllocatorConf, RefusesWhatIsNotModelled) {
  EXPECT_EQ(problems("backend:cudaMallocAsync"),
            "8: backend:cudaMallocAsync is not modelled: its pool is the driver's, with rules of its own");
  EXPECT_EQ(problems("throw_on_cudamalloc_oom:True"),
            "0: throw_on_cudamalloc_oom is newer than PyTorch 2.11 and not modelled");
  EXPECT_EQ(problems("throw_on_cudamalloc_oom:False"), "");
  EXPECT_EQ(problems("expandable_segments:True,large_segment_size_mb:21"),
            "0: expandable_segments with large_segment_size_mb:21: CUDA maps multiples of 2 MiB");
}

TEST(AllocatorConf, AMistakeHasAPlaceAndAHint) {
  try {
    (void)read_allocator_conf("expandable_segments:True,max_split_size:128", "PYTORCH_CUDA_ALLOC_CONF");
    FAIL() << "the key is misspelt";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "PYTORCH_CUDA_ALLOC_CONF:1:26: error: Unrecognized key 'max_split_size' in CUDA allocator config.\n"
                 "  hint: did you mean max_split_size_mb?");
  }
}

}  // namespace
}  // namespace tidemark::tests::allocator_conf_test
