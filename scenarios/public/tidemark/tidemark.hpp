#pragma once

// Tidemark as a library: values in, values out, one header for each question. The command line says the same: `json`
// is, byte for byte, what its --json writes, and is the form that stays stable from release to release.

#include <tidemark/advise.hpp>
#include <tidemark/capacity.hpp>
#include <tidemark/compare.hpp>
#include <tidemark/convert.hpp>
#include <tidemark/plan.hpp>
#include <tidemark/predict.hpp>
#include <tidemark/problem.hpp>
#include <tidemark/replay.hpp>
#include <tidemark/scenario.hpp>
