#pragma once

// A framework is written in the machine of torch/; plain PyTorch runs the modules of transformers, torchtitan
// and Megatron their own.
namespace tidemark::parallel::torch {}
namespace tidemark::parallel::megatron {
using namespace torch;
}  // namespace tidemark::parallel::megatron
namespace tidemark::parallel::transformers {
using namespace torch;
}  // namespace tidemark::parallel::transformers
namespace tidemark::parallel::pytorch {
using namespace torch;
using namespace transformers;
}  // namespace tidemark::parallel::pytorch
namespace tidemark::parallel::torchtitan {
using namespace pytorch;
}  // namespace tidemark::parallel::torchtitan
