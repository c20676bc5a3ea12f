#include "sim/program/program.hpp"

#include <algorithm>
#include <numeric>

namespace tidemark::sim {

bool is_handed_over(const Op& op) {
  return std::visit(Overloaded{
                        [](const Alloc&) { return false; },
                        [](const Free&) { return false; },
                        [](const Borrow&) { return false; },
                        [](const Launch&) { return true; },
                        [](const Collective&) { return true; },
                        [](const Exchange&) { return true; },
                        [](const Memcpy&) { return true; },
                        [](const Record&) { return false; },
                        [](const Wait&) { return false; },
                        [](const Sync&) { return false; },
                        [](const CreateDriver&) { return false; },
                        [](const CreateCommunicator&) { return false; },
                        [](const Bind&) { return false; },
                        [](const Unbind&) { return false; },
                        [](const Mark&) { return false; },
                    },
                    op);
}

Bytes larger_side(CollectiveKind kind, const MatrixRow& row) {
  const Bytes in = std::accumulate(row.sends.begin(), row.sends.end(), Bytes{});
  const Bytes out = std::accumulate(row.receives.begin(), row.receives.end(), Bytes{});
  switch (kind) {
    case CollectiveKind::AllGather:
      return out;
    case CollectiveKind::ReduceScatter:
      return in;
    case CollectiveKind::AllToAll:
      return std::max(in, out);
    case CollectiveKind::AllReduce:
    case CollectiveKind::Broadcast:
      break;  // have no parts
  }
  return {};
}

}  // namespace tidemark::sim
