#include "sim/program/label.hpp"

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::label_test {
namespace {

TEST(Label, SaysOfWhichLayerItIs) {
  const Label label("layers.12.mlp.fc1");
  EXPECT_EQ(label.layer, 12);
  EXPECT_EQ(label.layer_text(), "layers.12");
  EXPECT_EQ(label.within_layer(), ".mlp.fc1");
  EXPECT_EQ(Label("layers.0").layer, 0);
}

TEST(Label, IsOfNoLayerWhereItDoesNotBeginWithOne) {
  for (const char* text : {"optimizer", "layers", "layers.", "layers.x.norm", "layers.-1.norm", "layers.3x.norm",
                           "sublayers.3.norm", "layers.99999999999.norm"}) {
    const Label label(text);
    EXPECT_EQ(label.layer, -1) << text;
    EXPECT_EQ(label.layer_text(), "") << text;
    EXPECT_EQ(label.within_layer(), text);
  }
}

}  // namespace
}  // namespace tidemark::tests::label_test
