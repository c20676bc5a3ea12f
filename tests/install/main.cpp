#include <iostream>
#include <string>

#include <tidemark/tidemark.hpp>

// uses_tidemark QUESTION FILE: what the command line says, by the library.
int main(int, char** argv) try {
  const std::string question = argv[1];
  const tidemark::Options options{.data_root = DATA_ROOT, .progress = {}};
  if (question == "predict") {
    const auto prediction = tidemark::predict(tidemark::read_scenario(argv[2]), options);
    std::cout << prediction->json;
    return prediction->fits ? 0 : 1;
  }
  if (question == "advise") {
    const auto advice = tidemark::advise(tidemark::read_scenario(argv[2]), {options, 1, {}});
    std::cout << advice->json;
    return advice->fits || !advice->remedies.empty() ? 0 : 1;
  }
  if (question == "replay") {
    const tidemark::Replay replay = tidemark::replay(argv[2]);
    std::cout << replay.json;
    return replay.yes ? 0 : 1;
  }
  const tidemark::Conversion conversion = tidemark::convert({argv[2]}, {.data_root = DATA_ROOT,
                                                                        .variables = {},
                                                                        .model = {},
                                                                        .cluster = "clusters/h100-sxm-80g.toml",
                                                                        .gpus = {},
                                                                        .sequence_length = {},
                                                                        .micro_batch = {},
                                                                        .global_batch = {}});
  std::cout << conversion.scenario.text;
  return conversion.not_expressed.empty() ? 0 : 1;
} catch (const tidemark::InputError& error) {
  std::cerr << error.what() << '\n';
  return 2;
}
