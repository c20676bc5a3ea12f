#include "scenarios/scenario/model_names.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/job/built_model.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/scenario/image_towers.hpp"
#include "tests/convert/recipes.hpp"

// Checkpoints by their names: scenarios/model_names.json.

namespace tidemark::tests::model_names_test {
namespace {

const std::filesystem::path data = shipped_data();

std::int64_t parameters(const Model& model) { return parameter_count(build_model(model, {})); }

// What the dimensions come to, family by family, written down apart from what builds models.
std::int64_t closed_form(const Model& m) {
  const std::int64_t h = m.hidden, q = m.heads * m.head_dim, k = m.kv_heads * m.head_dim, f = m.ffn;
  const std::int64_t embeddings = (m.tied_embeddings ? 1 : 2) * m.vocabulary * h;
  if (m.architecture == "gpt2" || m.architecture == "gpt_neox") {
    const std::int64_t positions = m.architecture == "gpt2" ? m.max_positions * h : 0;
    const std::int64_t layer = (4 * h * h + 4 * h) + (2 * h * f + f + h) + 4 * h;
    return embeddings + positions + m.layers.size() * layer + 2 * h;
  }
  std::int64_t attention = 2 * h * q + 2 * h * k, norms = 2 * h;
  if (m.transformers_alone()) {
    const std::int64_t layers = m.layers.size(), biases = m.qkv_bias ? q + 2 * k : 0;
    const std::int64_t gated = 3 * h * f, plain = 2 * h * f + f + h;
    if (m.architecture == "starcoder2") return embeddings + layers * (attention + biases + h + plain + 4 * h) + 2 * h;
    if (m.architecture == "phi")  // one norm, and a bias of the head
      return embeddings + m.vocabulary + layers * (attention + biases + h + plain + 2 * h) + 2 * h;
    if (m.architecture == "olmo") return embeddings + layers * (attention + gated);  // norms without weights
    if (m.architecture.starts_with("cohere")) return embeddings + layers * (attention + gated + h) + h;
    if (m.architecture == "stablelm") return embeddings + layers * (attention + biases + gated + 4 * h) + 2 * h;
    const std::int64_t more = m.architecture == "glm4" ? 2 * h : m.architecture == "olmo3" ? q + k : 0;
    return embeddings + layers * (attention + biases + gated + norms + more) + h;
  }
  if (m.architecture == "nemotron-nas") {
    std::int64_t layers = 0;
    for (std::int64_t i = 0; i < m.layers.size(); ++i) {
      if (std::holds_alternative<parallel::Attention>(m.layers[i].mixer)) layers += attention + h;
      if (const auto* mlp = std::get_if<parallel::DenseMlp>(&m.layers[i].mlp)) layers += 3 * h * mlp->width(m) + h;
    }
    return embeddings + layers + h;
  }
  if (m.architecture.starts_with("qwen2")) attention += q + 2 * k;  // biases
  if (m.architecture.starts_with("qwen3") || m.architecture == "gemma3_text") attention += 2 * m.head_dim;
  if (m.architecture == "olmo2") attention += q + k;  // norms of Q and K
  if (m.architecture.starts_with("gemma") && m.architecture != "gemma") norms = 4 * h;
  const std::int64_t shared = m.experts() ? m.experts()->shared_ffn : 0;  // with a gate of its own
  const std::int64_t mlp = m.experts() ? m.experts()->count * (3 * h * m.experts()->ffn + h) +
                                             (m.architecture == "qwen2_moe" ? 3 * h * shared + h : 0)
                                       : 3 * h * f;
  return embeddings + m.layers.size() * (attention + mlp + norms) + h;
}

TEST(ModelNames, AreThreeHundredAndNoTwoDifferByCaseOnly) {
  std::set<std::string> small;
  for (const ModelName& its : model_names(data)) {
    std::string name = its.name;
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    EXPECT_TRUE(small.insert(name).second) << its.name;
  }
  EXPECT_GE(small.size(), 300U);
}

// "-Instruct" counts as its base where a source lists it with the same shape, as every name does.
TEST(ModelNames, EachStandsUnderASourceThatIsTold) {
  for (const ModelName& its : model_names(data)) {
    const bool reported =
        its.source.find('@') != std::string::npos || its.source.find("config.json of ") != std::string::npos;
    EXPECT_TRUE(reported) << its.name << ": " << its.source;
  }
}

TEST(ModelNames, EveryShapeHasTheParametersOfItsClosedForm) {
  const std::vector<std::string> shapes = named_shapes(data);
  EXPECT_GE(shapes.size(), 70U);
  for (const std::string& shape : shapes) {
    const auto its = named_config(shape, data);
    ASSERT_TRUE(its) << shape;
    const Model model = parse_model(its->text, its->path);
    EXPECT_EQ(parameters(model), closed_form(model)) << shape;
  }
}

// Totals that are published with the weights, tied ones once: they tell which embeddings are tied, and what is padded.
TEST(ModelNames, HaveThePublishedParameters) {
  const std::map<std::string, std::int64_t> published{
      {"gpt2-medium", 354'823'168},
      {"EleutherAI/pythia-160m", 162'322'944},
      {"meta-llama/Llama-3.2-1B-Instruct", 1'235'814'400},
      {"Qwen/Qwen2.5-0.5B", 494'032'768},
      {"Qwen/Qwen2-1.5B", 1'543'714'304},
      {"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1'777'088'000},
      {"Qwen/Qwen3-0.6B", 596'049'920},
      {"google/gemma-2-2b-it", 2'614'341'888},
      {"google/gemma-3-270m", 268'098'176},
      {"Qwen/Qwen1.5-MoE-A2.7B", 14'315'784'192},
      {"microsoft/Phi-4-mini-instruct", 3'836'021'760},
      {"mistralai/Mistral-7B-Instruct-v0.3", 7'248'023'552},
      {"mistralai/Mistral-Nemo-Instruct-2407", 12'247'782'400},
      {"allenai/OLMo-2-0425-1B", 1'484'916'736},
      {"HuggingFaceTB/SmolLM2-135M", 134'515'008},
      {"HuggingFaceTB/SmolLM2-360M-Instruct", 361'821'120},
      {"HuggingFaceTB/SmolLM2-1.7B", 1'711'376'384},
      {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", 1'100'048'384},
      {"meta-llama/Llama-3.1-8B-Instruct", 8'030'261'248},
      // 1,981,884,416 and 7,751,248,896 without embeddings in Gemma's report (arXiv 2403.08295, table 2).
      {"google/gemma-2b", 2'506'172'416},
      {"google/gemma-7b", 8'537'680'896},
      {"Qwen/Qwen2.5-72B-Instruct", 72'706'203'648},
      {"nvidia/Llama-3_3-Nemotron-Super-49B-v1", 49'867'145'216},
      {"bigcode/starcoder2-3b", 3'030'371'328},
      {"bigcode/starcoder2-7b", 7'173'923'840},
      {"bigcode/starcoder2-15b", 15'957'889'024},
      {"microsoft/phi-1_5", 1'418'270'720},
      {"microsoft/phi-2", 2'779'683'840},
      {"HuggingFaceTB/SmolLM3-3B", 3'075'098'624},
      {"zai-org/glm-4-9b-chat-hf", 9'399'951'360},
      {"allenai/OLMo-7B-hf", 6'888'095'744},
      {"allenai/Olmo-3-1025-7B", 7'298'011'136},
      {"stabilityai/stablelm-3b-4e1t", 2'795'443'200},
      {"CohereForAI/aya-23-8B", 8'028'033'024},
  };
  for (const auto& [name, total] : published) {
    const auto its = named_config(name, data);
    ASSERT_TRUE(its) << name;
    EXPECT_EQ(parameters(parse_model(its->text, its->path)), total) << name;
  }
}

// Towers for images by closed forms of their own, and wholes as they are published with the weights.
TEST(ModelNames, WithATowerForImagesAreATextModelAndThatTower) {
  const std::map<std::string, std::int64_t> published{
      {"Qwen/Qwen2-VL-2B-Instruct", 2'208'985'600},   {"Qwen/Qwen2-VL-7B-Instruct", 8'291'375'616},
      {"Qwen/Qwen2.5-VL-3B-Instruct", 3'754'622'976}, {"Qwen/Qwen2.5-VL-7B-Instruct", 8'292'166'656},
      {"Qwen/Qwen3-VL-4B-Instruct", 4'437'815'808},   {"Qwen/Qwen3-VL-8B-Instruct", 8'767'123'696},
      {"google/gemma-3-12b-it", 12'187'325'040},      {"google/gemma-3-27b-it", 27'432'406'640}};
  for (const auto& [name, total] : published) {
    const auto its = image_model(name, data);
    ASSERT_TRUE(its) << name;
    const auto text = named_config(name + ":text", data);
    ASSERT_TRUE(text) << name;
    const Model model = parse_model(text->text, text->path);
    EXPECT_EQ(model.name, name.substr(name.rfind('/') + 1) + ":text");
    const auto tower = std::ranges::find(image_towers, its->tower, &ImageTower::name);
    ASSERT_NE(tower, image_towers.end()) << its->tower;
    EXPECT_EQ(parameters(model) + tower->parameters(model.hidden), total) << name;
  }
  for (const ImageModel& its : image_models(data)) {
    EXPECT_NE(std::ranges::find(image_towers, its.tower, &ImageTower::name), image_towers.end()) << its.tower;
    EXPECT_TRUE(named_config(its.name + ":text", data)) << its.name;
    EXPECT_FALSE(named_config(its.name, data)) << its.name;
  }
}

TEST(ModelNames, AreFoundInSmallAndCapitalLettersAndGiveTheModelItsName) {
  const auto its = named_config("qwen/qwen2.5-7b-INSTRUCT", data);
  ASSERT_TRUE(its);
  EXPECT_EQ(its->name, "Qwen/Qwen2.5-7B-Instruct");
  EXPECT_EQ(its->shape, "qwen2.5-7b");
  EXPECT_EQ(its->file, data / "models" / "qwen2.5-7b.json");
  EXPECT_EQ(parse_model(its->text, its->path).name, "Qwen2.5-7B-Instruct");
  EXPECT_FALSE(named_config("Qwen/Qwen2.5-8B", data));
  EXPECT_FALSE(named_config("", data));
}

TEST(ModelNames, OfAFolderAreThoseThatEndInItAndHaveOneShape) {
  EXPECT_EQ(checkpoint_config("/data/models/Qwen2.5-0.5B-Instruct/", data).value().shape, "qwen2.5-0.5b");
  EXPECT_EQ(checkpoint_config("Llama-3.2-1B", data).value().shape, "llama-3.2-1b");
  EXPECT_FALSE(checkpoint_config("/data/models/mine", data));
  EXPECT_FALSE(checkpoint_config("/", data));
}

TEST(ModelNames, ThatAreUnknownAreRefusedWithTheNearest) {
  EXPECT_EQ(near_model_names("meta-llama/Llama-3.1-8B-Instructt", data),
            (std::vector<std::string>{"meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"}));
  EXPECT_TRUE(near_model_names("facebook/opt-13b", data).empty());
  try {
    parse_scenario("model = \"Qwen/Qwen2.5-8B\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 1\n", "s.toml",
                   {".", data});
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("\"Qwen/Qwen2.5-7B\""), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("nor a model's name that is known"), std::string::npos) << error.what();
  }
}

// Each in a job of one device that a framework takes which has its family, and the dense ones predicted: an answer, yes
// or no. Of hundreds of experts a device's programs take their time.
TEST(ModelNames, EachIsPredicted) {
  std::set<std::string> requested;
  for (const ModelName& its : model_names(data)) {
    const auto config = named_config(its.name, data);
    ASSERT_TRUE(config) << its.name;
    const Model model = parse_model(config->text, config->path);
    if (!requested.insert(its.shape).second) continue;  // its shape was
    const bool experts = model.experts() != nullptr, of_megatron = experts || model.heterogeneous();
    const std::string text = "model = \"" + its.name + "\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 1\n" +
                             "[train]\nsequence_length = 128\nmicro_batch = 1\n[runtime]\nname = \"" +
                             (of_megatron ? "megatron" : "pytorch") + "\"\n";
    try {
      const Scenario scenario = parse_scenario(text, "job.toml", {".", data});
      EXPECT_EQ(scenario.model.name, its.name.substr(its.name.rfind('/') + 1));
      if (!experts) {
        EXPECT_GT(predict(scenario).parameters, 0) << its.name;
      }
    } catch (const InputError& error) {
      ADD_FAILURE() << its.name << ": " << error.what();
    }
  }
}

// ---- and in files of other frameworks

std::string model_in(const std::string& name, const std::string& text) {
  ConvertRequest requested;
  requested.files = {name};
  requested.texts = {{name, text}};
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.gpus = 8;
  requested.sequence_length = 1024;
  requested.data_root = data;
  const Converted converted = convert(requested);
  for (const Remark& remark : converted.remarks)
    if (remark.kind == RemarkKind::NotExpressed) return remark.what + ": " + remark.why;
  const Scenario scenario = scenario_of(converted, data);
  return scenario.model.name + " of " + std::to_string(scenario.model.vocabulary);
}

TEST(ModelNames, AreTakenOfTrainingScripts) {
  const std::string run =
      "torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 1 --bf16 --model_name_or_path ";
  EXPECT_EQ(model_in("job.sh", run + "Qwen/Qwen2.5-0.5B-Instruct"), "Qwen2.5-0.5B-Instruct of 151936");
  EXPECT_EQ(model_in("job.sh", run + "/data/SmolLM2-1.7B"), "SmolLM2-1.7B of 49152");
  EXPECT_EQ(model_in("job.sh", run + "meta-llama/Llama-3.1-8B-Instruct"), "llama-3.1-8b of 128256");
  EXPECT_EQ(model_in("job.sh", run + "Qwen/Qwen2.5-8B"),
            "--model_name_or_path = \"Qwen/Qwen2.5-8B\": this model is not shipped (did you mean Qwen/Qwen2.5-3B or "
            "Qwen/Qwen2.5-7B?): give its config.json with --model");
  // Nobody says that what was tuned of a shape is that shape.
  EXPECT_EQ(model_in("job.sh", run + "somebody/llama-3.1-8b-chat").substr(0, 27), "--model_name_or_path = \"som");
}

TEST(ModelNames, AreTakenOfMegatronsTokenizers) {
  const std::string run =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --swiglu --normalization RMSNorm --disable-bias-linear --seq-length "
      "1024 "
      "--position-embedding-type rope --group-query-attention --micro-batch-size 1 --bf16 --attention-dropout 0 "
      "--hidden-dropout 0 ";
  const std::string of_1b =
      "--num-layers 16 --hidden-size 2048 --ffn-hidden-size 8192 --num-attention-heads 32 --num-query-groups 8 ";
  EXPECT_EQ(model_in("job.sh", run + of_1b + "--tokenizer-model meta-llama/Llama-3.2-1B"), "Llama-3.2-1B of 128256");
}

TEST(ModelNames, AModelOfNoFamilyNamesTheArgumentAtFault) {
  const std::string run =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 16 --hidden-size 2048 --ffn-hidden-size 8192 "
      "--num-attention-heads 32 --group-query-attention --num-query-groups 8 --swiglu --disable-bias-linear "
      "--untie-embeddings-and-output-weights --position-embedding-type rope --seq-length 1024 --vocab-size 32000 "
      "--micro-batch-size 1 --bf16 --attention-dropout 0 --hidden-dropout 0 --normalization ";
  EXPECT_EQ(model_in("job.sh", run + "RMSNorm"), "resized llama-2-70b of 32000");
  EXPECT_EQ(model_in("job.sh", run + "RMSNorm --add-qkv-bias --qk-layernorm"),
            "the model: no family that is known has one like this, but for --add-qkv-bias or --qk-layernorm: give a "
            "config.json with --model");
}

}  // namespace
}  // namespace tidemark::tests::model_names_test
