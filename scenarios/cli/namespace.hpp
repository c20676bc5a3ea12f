#pragma once

// What this library may include, it may name without its namespace.
namespace tidemark::sim {}
namespace tidemark::topology {}
namespace tidemark::parallel {}
namespace tidemark::kernels {}
namespace tidemark::execute {}
namespace tidemark::scenarios {}
namespace tidemark::cli {
using namespace sim;
using namespace topology;
using namespace parallel;
using namespace kernels;
using namespace execute;
using namespace scenarios;
}  // namespace tidemark::cli
