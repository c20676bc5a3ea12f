#include <iostream>

#include <tidemark/tidemark.hpp>

int main(int, char** argv) try {
  const auto prediction = tidemark::predict(tidemark::read_scenario(argv[1]), {.data_root = DATA_ROOT, .progress = {}});
  std::cout << prediction->json;
  return prediction->fits ? 0 : 1;
} catch (const tidemark::InputError& error) {
  std::cerr << error.what() << '\n';
  return 2;
}
