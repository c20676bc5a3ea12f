#include "sim/memory/driver_addresses.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::driver_addresses_test {
namespace {

using namespace literals;

constexpr Address first{0x7f00'0000'0000};
constexpr StreamId stream{0};

// MiB below the first address.
std::int64_t below(Address address) { return (first - address).count() >> 20; }

// Ten segments of a layer's parameters, as an H100's driver placed them (tests/golden/gpu_recordings/plain.pickle.gz,
// from its sixth on).
TEST(DriverAddresses, AreThoseThatADriverGave) {
  DriverAddresses driver(AddressOrder::Falling);
  std::vector<std::int64_t> at;
  for (const std::int64_t mib : {44, 44, 44, 16, 16, 44, 44, 44, 16, 20})
    at.push_back(below(*driver.allocate(mib * 1_MiB, stream)));
  EXPECT_EQ(at, (std::vector<std::int64_t>{64, 128, 192, 148, 84, 256, 320, 384, 340, 276}));
}

TEST(DriverAddresses, GapsJoinAndAreUsedAgain) {
  DriverAddresses driver(AddressOrder::Falling);
  const Address a = *driver.allocate(32_MiB, stream), b = *driver.allocate(32_MiB, stream),
                c = *driver.allocate(32_MiB, stream);
  EXPECT_EQ(below(c), 96);
  driver.release(a, 32_MiB);
  driver.release(c, 32_MiB);
  EXPECT_EQ(*driver.allocate(20_MiB, stream), c);  // the lowest
  driver.release(c, 20_MiB);
  driver.release(b, 32_MiB);
  EXPECT_EQ(*driver.allocate(96_MiB, stream), c);
  EXPECT_EQ(below(*driver.allocate(2_MiB, stream)), 128);
}

TEST(DriverAddresses, MayRise) {
  DriverAddresses driver(AddressOrder::Rising);
  const Address a = *driver.allocate(3_MiB, stream);
  EXPECT_EQ(a, first);
  EXPECT_EQ(*driver.allocate(20_MiB, stream), first + 4_MiB);
  driver.release(a, 3_MiB);
  EXPECT_EQ(*driver.allocate(2_MiB, stream), first + 24_MiB);
}

// More than there could be does not end the simulation of it.
TEST(DriverAddresses, DoNotRunOut) {
  DriverAddresses driver(AddressOrder::Falling);
  const Bytes huge{1LL << 46};
  const Address a = *driver.allocate(huge, stream), b = *driver.allocate(huge, stream),
                c = *driver.allocate(huge, stream);
  EXPECT_EQ(a + huge, first);
  EXPECT_EQ(b, first);
  EXPECT_EQ(c, first + huge);
}

}  // namespace
}  // namespace tidemark::tests::driver_addresses_test
