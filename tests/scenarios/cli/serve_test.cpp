// The page that `tidemark serve` shows, asked as a browser asks it.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::serve_test {
namespace {

using nlohmann::json;

const std::string small = "model=llama-3.1-8b&cluster=h100-sxm-80g&gpus=8&sequence=2048&tensor=2&sequence_parallel=on";

class Serve : public testing::Test {
 protected:
  void start(const std::string& limit = "60") {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    std::string program = TIDEMARK_BINARY, verb = "serve", flag = "--time-limit", seconds = limit;
    char* words[] = {program.data(), verb.data(), flag.data(), seconds.data(), nullptr};
    ASSERT_EQ(posix_spawn(&id_, program.c_str(), &files, nullptr, words, environ), 0);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    std::string said;
    for (char c = 0; said.find('\n') == std::string::npos && read(ends[0], &c, 1) == 1;) said += c;
    close(ends[0]);
    const std::size_t port = said.find("127.0.0.1:"), token = said.find("?token=");
    ASSERT_NE(port, std::string::npos) << said;
    port_ = std::stoi(said.substr(port + 10));
    token_ = said.substr(token + 7, said.find('\n') - token - 7);
    client_ = std::make_unique<httplib::Client>("127.0.0.1", port_);
    client_->set_read_timeout(120);
  }
  void TearDown() override {
    if (id_ > 0) end(SIGTERM);
  }
  int end(int signal) {
    kill(id_, signal);
    int status = 0;
    waitpid(id_, &status, 0);
    id_ = 0;
    return status;
  }

  [[nodiscard]] httplib::Headers known() const { return {{"Cookie", "tidemark=" + token_}}; }
  std::string get(const std::string& query) {
    const httplib::Result reply = client_->Get("/?" + query, known());
    return reply ? reply->body : "no reply";
  }
  std::string post(const std::string& path, const httplib::Params& fields) {
    httplib::MultipartFormDataItems items;
    for (const auto& [name, value] : fields) items.push_back({name, value, "", ""});
    const httplib::Result reply = client_->Post(path, known(), items);
    return reply ? reply->body : "no reply";
  }

  pid_t id_ = 0;
  int port_ = 0;
  std::string token_;
  std::unique_ptr<httplib::Client> client_;
};

TEST_F(Serve, AnswersWhoHasTheTokenAndNobodyElse) {
  start();
  EXPECT_EQ(client_->Get("/")->status, 403);
  EXPECT_EQ(client_->Get("/?token=0" + token_)->status, 403);
  EXPECT_EQ(client_->Get("/", {{"Cookie", "tidemark=" + token_}, {"Host", "example.org"}})->status, 403);
  const httplib::Result reply = client_->Get("/?token=" + token_);
  EXPECT_EQ(reply->status, 200);
  EXPECT_NE(reply->get_header_value("Set-Cookie").find("HttpOnly; SameSite=Strict"), std::string::npos);
  EXPECT_NE(reply->get_header_value("Content-Security-Policy").find("default-src 'none'"), std::string::npos);
}

TEST_F(Serve, SaysWhatPredictSaysWithoutAScriptToo) {
  start();
  const std::string page = get(small),
                    file = testing::TempDir() + "tidemark_serve_" + std::to_string(getpid()) + ".json";
  const std::string command =
      "'" TIDEMARK_BINARY
      "' predict --model llama-3.1-8b --cluster h100-sxm-80g --gpus 8 --sequence 2048 --tensor 2 --sequence-parallel "
      "--json '" +
      file + "' > /dev/null 2>&1";
  ASSERT_GE(std::system(command.c_str()), 0);
  std::ifstream stream(file);
  const json predicted = json::parse(stream);
  std::filesystem::remove(file);
  char figure[64];
  double most = 0;
  for (const json& group : predicted["groups"])
    most = std::max(most, group["required_device_upper_bytes"].get<double>());
  std::snprintf(figure, sizeof figure, "up to %.1f GiB", most / (1 << 30));
  EXPECT_NE(page.find(figure), std::string::npos) << figure;
  EXPECT_NE(page.find(predicted["fits"].get<bool>() ? "data-verdict=\"yes\"" : "data-verdict=\"no\""),
            std::string::npos);
  EXPECT_NE(page.find("value=\"llama-3.1-8b\""), std::string::npos) << "the form is filled in";
  EXPECT_NE(page.find("<svg class=\"bar\""), std::string::npos);
  EXPECT_NE(page.find("--tensor-model-parallel-size 2"), std::string::npos) << "the launch script";
}

TEST_F(Serve, SaysWhatIsWrongAtItsField) {
  start();
  const std::string page = get(small + "&pipeline=3");
  EXPECT_NE(page.find("data-verdict=\"wrong\""), std::string::npos) << page;
  EXPECT_NE(page.find("pipeline"), std::string::npos);
  EXPECT_NE(get("model=%3Cscript%3Ealert(1)%3C/script%3E&cluster=h100-sxm-80g&gpus=8&sequence=1024")
                .find("&lt;script&gt;alert(1)"),
            std::string::npos);
  EXPECT_NE(get("colour=blue").find("is not a field of it"), std::string::npos);
  EXPECT_NE(get("model=llama-3.1-8b").find("not filled in"), std::string::npos);
}

TEST_F(Serve, LooksAheadAtWhatMayBeAskedNext) {
  start();
  get(small);
  const httplib::Params fields = [] {
    httplib::Params out;
    httplib::detail::parse_query_text(small, out);
    return out;
  }();
  json known;
  for (int tries = 0; tries < 600; ++tries) {
    known = json::parse(post("/near", fields))["known"];
    if (!known.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ASSERT_FALSE(known.empty());
  EXPECT_EQ(known[0]["field"], "micro_batch");
  EXPECT_EQ(known[0]["change"], "Micro-batch: 2");
}

TEST_F(Serve, TakesALaunchScriptAndReadsNoOtherFile) {
  start();
  const std::string script =
      "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
      "--num-attention-heads 32 --group-query-attention --num-query-groups 8 --vocab-size 128256 --swiglu "
      "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type "
      "rope --rotary-base 500000 --max-position-embeddings 8192 --seq-length 2048 --micro-batch-size 1 "
      "--global-batch-size 8 --bf16 --tensor-model-parallel-size 2 --use-distributed-optimizer\n";
  const std::string answer =
      post("/answer", {{"kind", ".sh"}, {"file", script}, {"cluster", "h100-sxm-80g"}, {"gpus", "8"}});
  EXPECT_NE(answer.find("tensor = 2"), std::string::npos) << answer;
  const std::string secret = testing::TempDir() + "tidemark_serve_secret_" + std::to_string(getpid()) + ".json";
  std::ofstream(secret) << "{\"model_type\": \"hush\"}";
  const std::string job = "model = \"" + secret +
                          "\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n[train]\nsequence_length = "
                          "1024\nmicro_batch = 1\n[runtime]\nname = \"fsdp2\"\n";
  const std::string refused = post("/answer", {{"kind", ".toml"}, {"file", job}});
  std::filesystem::remove(secret);
  EXPECT_NE(refused.find("data-verdict=\"wrong\""), std::string::npos);
  EXPECT_EQ(refused.find("hush"), std::string::npos) << refused;
}

TEST_F(Serve, EndsAQuestionThatTakesTooLongAndGoesOn) {
  start("1");
  const std::string large =
      "model=mixtral-8x22b&cluster=h100-sxm-80g&gpus=1024&sequence=4096&global_batch=8192&pipeline=8&expert=8&tensor=4&"
      "chunks=7&schedule=interleaved"
      "&sequence_parallel=on&sharding=zero1";
  EXPECT_NE(get(large).find("takes longer than 1 s"), std::string::npos);
  EXPECT_EQ(client_->Get("/serve.css")->status, 200);
}

TEST_F(Serve, RefusesMoreThanItReads) {
  start();
  const std::string large = post("/answer", {{"kind", ".sh"}, {"file", std::string(3U << 20, 'x')}});
  EXPECT_EQ(large.find("data-verdict"), std::string::npos) << large.substr(0, 200);
  EXPECT_NE(post("/answer", {{"kind", ".sh"}, {"file", std::string((1U << 20) + 1, 'x')}}).find("is longer than"),
            std::string::npos);
}

TEST_F(Serve, CtrlCEndsIt) {
  start();
  get(small);
  const int status = end(SIGINT);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

}  // namespace
}  // namespace tidemark::tests::serve_test
