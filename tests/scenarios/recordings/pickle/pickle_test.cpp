#include "scenarios/recordings/pickle/pickle.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/recordings/pickle/pickle_opcodes.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::pickle_test {
namespace {

using namespace std::string_literals;

// As Python's repr: "[1, 'a', (None, True)]".
std::string text(const Pickle& pickle, const PickleValue& value);

std::string joined(const Pickle& pickle, std::span<const PickleValue> items) {
  std::string out;
  for (const PickleValue& item : items) out.append(out.empty() ? "" : ", ").append(text(pickle, item));
  return out;
}

std::string wrapped(char open, std::string inner, char close) {
  inner.insert(inner.begin(), open);
  inner.push_back(close);
  return inner;
}

std::string text(const Pickle& pickle, const PickleValue& value) {
  if (const bool* b = std::get_if<bool>(&value)) return *b ? "True" : "False";
  if (const auto* n = std::get_if<std::int64_t>(&value)) return std::to_string(*n);
  if (const double* x = std::get_if<double>(&value)) return std::to_string(*x);
  if (const auto* s = std::get_if<PickleText>(&value)) return wrapped('\'', std::string(pickle.text(*s)), '\'');
  if (const auto* list = std::get_if<PickleList>(&value)) return wrapped('[', joined(pickle, pickle.items(*list)), ']');
  if (const auto* tuple = std::get_if<PickleTuple>(&value))
    return wrapped('(', joined(pickle, pickle.items(*tuple)), ')');
  if (const auto* dict = std::get_if<PickleDict>(&value))
    return wrapped('{', joined(pickle, pickle.entries(*dict)), '}');
  if (const auto* bytes = std::get_if<PickleBytes>(&value))
    return 'b' + wrapped('\'', std::string(pickle.bytes(*bytes)), '\'');
  if (const auto* set = std::get_if<PickleSet>(&value))
    return "set" + wrapped('{', joined(pickle, pickle.items(*set)), '}');
  return "None";
}

const std::string header = "\x80\x04";

// What the opcodes after the header leave as result.
std::string read(const std::string& opcodes) {
  const Pickle pickle = read_pickle(header + opcodes);
  return text(pickle, pickle.root());
}

std::string error(const std::string& bytes, const PickleLimits& limits = {}) {
  try {
    const Pickle pickle = read_pickle(bytes, "", limits);
    return "no error: " + text(pickle, pickle.root());
  } catch (const InputError& e) {
    return e.problems().at(0).message;
  }
}

std::string repeated(std::string_view piece, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += piece;
  return out;
}

std::filesystem::path corpus() { return std::filesystem::path(TIDEMARK_SOURCE_DIR) / "tests/fuzz/corpus/pickle"; }

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Pickle, ReadsScalars) {
  EXPECT_EQ(read("N."), "None");
  EXPECT_EQ(read("\x88."), "True");
  EXPECT_EQ(read("\x89."), "False");
  EXPECT_EQ(read("K\xff."), "255");
  EXPECT_EQ(read("M\xff\xff."), "65535");
  EXPECT_EQ(read("J\xff\xff\xff\xff."), "-1") << "BININT is signed";
  EXPECT_EQ(read("J\0\0\0\x80."s), "-2147483648");
  EXPECT_EQ(read("G?\xe0\0\0\0\0\0\0."s), "0.500000") << "floats are big-endian";
  EXPECT_EQ(read("\x8c\x03"s + "abc."), "'abc'");
  EXPECT_EQ(read("X\x03\0\0\0abc."s), "'abc'");
}

TEST(Pickle, LongIntegersAreTwosComplement) {
  EXPECT_EQ(read("\x8a\0."s), "0");
  EXPECT_EQ(read("\x8a\x01\xff."s), "-1");
  EXPECT_EQ(read("\x8a\x05\0\0\0\x80\0."s), "2147483648");
  EXPECT_EQ(read("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."s), "9223372036854775807");
  EXPECT_EQ(read("\x8a\x08\0\0\0\0\0\0\0\x80."s), "-9223372036854775808");
  EXPECT_EQ(read("\x8a\x0a\x01\0\0\0\0\0\0\0\0\0."s), "1") << "more bytes than needed";
  EXPECT_EQ(error(header + "\x8a\x09\0\0\0\0\0\0\0\x80\0."s),
            "not a readable pickle: at byte 2: an integer needs more than 64 bits");
}

TEST(Pickle, LongIntegersHaveLengthsOfFourBytesToo) {
  EXPECT_EQ(read("\x8b\x02\0\0\0\xff\x7f."s), "32767");
  EXPECT_EQ(read("\x8b\x0a\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff\xff\xff."s), "-2");
  EXPECT_EQ(error(header + "\x8b\xff\xff\xff\xff."s), "not a readable pickle: at byte 2: a length of -1");
  EXPECT_EQ(error(header + "\x8b\xff\xff\xff\x7f\0."s),
            "not a readable pickle: at byte 2: the data ends 6 bytes too early");
}

TEST(Pickle, ReadsTextsAndBytesOfEveryLength) {
  EXPECT_EQ(read("\x8d\x03\0\0\0\0\0\0\0abc."s), "'abc'");
  EXPECT_EQ(read("U\x03"
                 "abc."),
            "'abc'")
      << "a text of Python 2";
  EXPECT_EQ(read("T\x03\0\0\0abc."s), "'abc'");
  EXPECT_EQ(read("C\x02\xff\0."s), "b'\xff\0'"s);
  EXPECT_EQ(read("B\x02\0\0\0ab."s), "b'ab'");
  EXPECT_EQ(read("\x8e\x02\0\0\0\0\0\0\0ab."s), "b'ab'");
  EXPECT_EQ(read("\x96\x02\0\0\0\0\0\0\0ab."s), "b'ab'") << "a bytearray";
  EXPECT_EQ(error(header + "T\xff\xff\xff\xff."s), "not a readable pickle: at byte 2: a length of -1");
  EXPECT_EQ(error(header + "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                           "ab."),
            "not a readable pickle: at byte 2: the data ends 18446744073709551612 bytes too early");
  // Bytes are no text, even if they are equal to one.
  const Pickle pickle = read_pickle(header + "}(C\x01kK\x01\x8c\x01jK\x02u."s);
  EXPECT_EQ(pickle.find(std::get<PickleDict>(pickle.root()), "k"), nullptr);
}

TEST(Pickle, ReadsSets) {
  EXPECT_EQ(read("\x8f."), "set{}");
  EXPECT_EQ(read("\x8f(K\x01K\x02\x90(\x90."), "set{1, 2}");
  EXPECT_EQ(read("(K\x01K\x02\x91."), "set{1, 2}") << "frozen";
  EXPECT_EQ(error(header + "\x8f(]\x90."), "not a readable pickle: at byte 5: a list cannot be in a set");
  EXPECT_EQ(error(header + "](K\x01\x90."), "not a readable pickle: at byte 6: expected a set to add to, found a list");
  EXPECT_EQ(error(header + "\x8f\x94(h\0\x85\x90."s), "not a readable pickle: at byte 9: a container holds itself");
}

TEST(Pickle, TakesBackWhatItPushed) {
  EXPECT_EQ(read("K\x01K\x02"
                 "0."),
            "1");
  EXPECT_EQ(read("K\x01(0."), "1") << "a mark goes as a value does";
  EXPECT_EQ(read("K\x01(K\x02K\x03"
                 "1."),
            "1");
  EXPECT_EQ(read("]K\x01"
                 "2\x86"
                 "a."),
            "[(1, 1)]");
  EXPECT_EQ(error(header + "0."), "not a readable pickle: at byte 2: too few values on the stack");
  EXPECT_EQ(error(header + "1."), "not a readable pickle: at byte 2: there is no mark on the stack");
  EXPECT_EQ(error(header + "K\x01(2."), "not a readable pickle: at byte 5: too few values on the stack");
}

TEST(Pickle, ReadsContainers) {
  EXPECT_EQ(read("]."), "[]");
  EXPECT_EQ(read(")."), "()");
  EXPECT_EQ(read("}."), "{}");
  EXPECT_EQ(read("]K\x01"
                 "a."),
            "[1]");
  EXPECT_EQ(read("](K\x01K\x02"
                 "e(K\x03"
                 "e."),
            "[1, 2, 3]");
  EXPECT_EQ(read("(K\x01K\x02l."), "[1, 2]");
  EXPECT_EQ(read("(K\x01K\x02t."), "(1, 2)");
  EXPECT_EQ(read("K\x01\x85."), "(1)");
  EXPECT_EQ(read("K\x01K\x02\x86."), "(1, 2)");
  EXPECT_EQ(read("K\x01K\x02K\x03\x87."), "(1, 2, 3)");
  EXPECT_EQ(read("}K\x01K\x02s."), "{1, 2}");
  EXPECT_EQ(read("}(K\x01K\x02K\x03Nu."), "{1, 2, 3, None}");
  EXPECT_EQ(read("(K\x01K\x02"
                 "d."),
            "{1, 2}");
  EXPECT_EQ(read("\x95\x04\0\0\0\0\0\0\0]](K\x01"
                 "ea."s),
            "[[1]]")
      << "frames are skipped";
}

TEST(Pickle, SharedObjectsStayShared) {
  // A list is put into a tuple twice, and filled afterwards.
  const Pickle pickle = read_pickle(header +
                                    "]\x94h\0\x86h\0K\x07"
                                    "a\x86."s);
  EXPECT_EQ(text(pickle, pickle.root()), "(([7], [7]), [7])");
  const auto outer = pickle.items(std::get<PickleTuple>(pickle.root()));
  const auto inner = pickle.items(std::get<PickleTuple>(outer[0]));
  EXPECT_EQ(inner[0], inner[1]);
  EXPECT_EQ(inner[0], outer[1]);
}

TEST(Pickle, MemoisesByOrderOrByNumber) {
  EXPECT_EQ(read("(\x8c\x01x\x94\x8c\x01y\x94h\0h\x01t."s), "('x', 'y', 'x', 'y')");
  EXPECT_EQ(read("(\x8c\x01xq\x01\x8c\x01yr\x02\0\0\0j\x01\0\0\0h\x02t."s), "('x', 'y', 'x', 'y')");
}

TEST(Pickle, TheLastOfEqualKeysCounts) {
  const Pickle pickle = read_pickle(header + "}(\x8c\x01kK\x01\x8c\x01kK\x02u."s);
  const auto dict = std::get<PickleDict>(pickle.root());
  ASSERT_NE(pickle.find(dict, "k"), nullptr);
  EXPECT_EQ(*pickle.find(dict, "k"), PickleValue(std::int64_t{2}));
  EXPECT_EQ(pickle.find(dict, "absent"), nullptr);
}

TEST(Pickle, ListsGrowAcrossBatches) {
  std::string batches = "]";
  for (int batch = 0; batch < 50; ++batch) batches.append("(").append(repeated("K\x01]", 500)).append("e");
  const Pickle pickle = read_pickle(header + batches + ".");
  EXPECT_EQ(pickle.items(std::get<PickleList>(pickle.root())).size(), 50'000U);
}

TEST(Pickle, ReadsWhatPythonWrote) {
  const Pickle pickle = read_pickle(content(corpus() / "values.pickle"));
  EXPECT_EQ(text(pickle, pickle.root()),
            "[None, True, False, 0, 255, 256, 65535, 65536, -1, -2147483648, 2147483648, -9223372036854775808, "
            "9223372036854775807, 0.500000, -1024.250000, '', 'a', '\u00e9\u4e2d', (), (1), (1, 2), (1, 2, 3), "
            "(1, 2, 3, 4), [], [1], [0, 1, 2, 3, 4], {}, {'k', 1}, {'k', [{'n', ()}], 2, 3}]");
  const Pickle marks = read_pickle(content(corpus() / "marks.pickle"));
  EXPECT_EQ(text(marks, marks.root()), "(['a', 'a', 'a'], {1, 2}, (1, 2, 3, 4))");
}

// As Python's pickle.dumps wrote them, with all that the protocol has of its own for plain data.
TEST(Pickle, ReadsAllPlainDataOfEveryProtocol) {
  const std::string numbers =
      "[None, True, False, 0, 255, 256, 65536, -1, 2147483648, -9223372036854775808, 9223372036854775807, 0.500000, "
      "'a', '" +
      repeated("x", 300) + "', (), (1), (1, 2, 3, 4), {}, {'k', ['same'], ('t', 1), 2}, ['same'], [0, 1, 2]";
  const std::string bytes = ", b'', b'ab\0', b'"s + repeated("y", 300) + "'";
  const std::string sets = ", set{}, set{7}, set{}, set{8}";
  const auto says = [](const char* name) {
    const Pickle pickle = read_pickle(content(corpus() / name));
    return text(pickle, pickle.root());
  };
  EXPECT_EQ(says("plain-protocol2.pickle"), numbers + "]");
  EXPECT_EQ(says("plain-protocol3.pickle"), numbers + bytes + "]");
  EXPECT_EQ(says("plain-protocol4.pickle"), numbers + bytes + sets + "]");
  EXPECT_EQ(says("plain-protocol5.pickle"), numbers + bytes + sets + ", b'cd']");
  EXPECT_EQ(error(content(corpus() / "refused-bytes-protocol2.pickle")),
            "not a readable pickle: at byte 2: opcode GLOBAL (0x63) is refused: it names a class or a function");
  EXPECT_EQ(
      error(content(corpus() / "refused-buffer.pickle")),
      "not a readable pickle: at byte 2: opcode NEXT_BUFFER (0x97) is refused: it stands for a buffer outside of the "
      "file");
}

TEST(Pickle, EveryProtocolSaysTheSame) {
  const Pickle two = read_pickle(content(corpus() / "snapshot-protocol2.pickle"));
  for (const char* other : {"snapshot-protocol3.pickle", "snapshot-protocol4.pickle", "snapshot-protocol5.pickle"}) {
    const Pickle pickle = read_pickle(content(corpus() / other));
    EXPECT_EQ(text(pickle, pickle.root()), text(two, two.root())) << other;
  }
}

TEST(Pickle, RefusesEveryOpcodeThatIsNotPlainData) {
  const std::string plain =
      "(.012NJKMGXTUBC])}ltdaesuhjqr\x80\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x94\x95\x96";
  int refused = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const auto opcode = static_cast<char>(byte);
    if (plain.find(opcode) != std::string::npos) continue;
    // Enough on the stack and behind it for whatever the opcode wants.
    const std::string message = error(header + "]]}" + opcode + "os\nsystem\n" + std::string(16, '\0') + ".");
    EXPECT_EQ(message, "not a readable pickle: at byte 5: opcode " + opcode_name(static_cast<PickleOpcode>(byte)) +
                           " is refused: " + std::string(reason_to_refuse(static_cast<PickleOpcode>(byte))));
    ++refused;
  }
  EXPECT_EQ(refused, 256 - 46);
}

TEST(Pickle, NamesTheOpcodeItRefuses) {
  EXPECT_EQ(error("\x80\x02"
                  "cposix\nsystem\nX\x02\0\0\0ls\x85R."s),
            "not a readable pickle: at byte 2: opcode GLOBAL (0x63) is refused: it names a class or a function");
  EXPECT_EQ(error(header + "]R."),
            "not a readable pickle: at byte 3: opcode REDUCE (0x52) is refused: it makes an object");
  EXPECT_EQ(
      error(header + "\x82\x01."),
      "not a readable pickle: at byte 2: opcode EXT1 (0x82) is refused: it names a class by its number in a registry");
  EXPECT_EQ(
      error(header + "\x97."),
      "not a readable pickle: at byte 2: opcode NEXT_BUFFER (0x97) is refused: it stands for a buffer outside of the "
      "file");
  EXPECT_EQ(
      error(header + "NQ."),
      "not a readable pickle: at byte 3: opcode BINPERSID (0x51) is refused: it names an object outside of the file");
  EXPECT_EQ(error(header + "I1\n."),
            "not a readable pickle: at byte 2: opcode INT (0x49) is refused: it is of protocol 0, which no pickle of "
            "protocols 2 to 5 holds");
  EXPECT_EQ(error(header + "\xff."), "not a readable pickle: at byte 2: opcode 0xff is refused: no protocol has it");
  EXPECT_EQ(opcode_name(static_cast<PickleOpcode>('R')), "REDUCE (0x52)");
  EXPECT_EQ(opcode_name(static_cast<PickleOpcode>(0x93)), "STACK_GLOBAL (0x93)");
  EXPECT_EQ(opcode_name(static_cast<PickleOpcode>(0x8b)), "LONG4 (0x8b)");
  EXPECT_EQ(opcode_name(static_cast<PickleOpcode>(0xff)), "0xff");
}

TEST(Pickle, NeedsItsHeader) {
  EXPECT_EQ(error(""),
            "not a readable pickle: at byte 0: the file does not start with a pickle header "
            "(0x80 and a protocol number)");
  EXPECT_EQ(error("{\"segments\": []}"), error(""));
  EXPECT_EQ(error("(lp0\n."), error("")) << "protocol 0 is text";
  EXPECT_EQ(error("\x80\x06N."), "not a readable pickle: at byte 0: protocol 6 is not one of 2, 3, 4, 5");
}

TEST(Pickle, EveryTruncationIsAnError) {
  for (const char* name : {"snapshot-protocol2.pickle", "snapshot-protocol4.pickle", "values.pickle", "marks.pickle",
                           "plain-protocol2.pickle", "plain-protocol5.pickle"}) {
    const std::string whole = content(corpus() / name);
    ASSERT_FALSE(whole.empty());
    EXPECT_NO_THROW(read_pickle(whole));
    for (std::size_t length = 0; length < whole.size(); ++length) {
      EXPECT_THROW(read_pickle(whole.substr(0, length)), InputError) << name << " cut to " << length;
    }
  }
  EXPECT_EQ(error(header + "X\x05\0\0\0ab"s), "not a readable pickle: at byte 2: the data ends 3 bytes too early");
}

TEST(Pickle, EveryChangedByteIsReadOrRejected) {
  const std::string whole = content(corpus() / "snapshot-protocol4.pickle");
  for (std::size_t place = 0; place < whole.size(); ++place) {
    for (int byte = 0; byte < 256; byte += 15) {
      std::string changed = whole;
      changed[place] = static_cast<char>(byte);
      EXPECT_NE(error(changed), "");
    }
  }
}

TEST(Pickle, TheStackIsChecked) {
  const auto wrong = [](const std::string& opcodes) {
    return error(header + opcodes).substr(std::string("not a readable pickle: ").size());
  };
  EXPECT_EQ(wrong("."), "at byte 2: 0 values are left on the stack at STOP, where one is the result");
  EXPECT_EQ(wrong("NN."), "at byte 4: 2 values are left on the stack at STOP, where one is the result");
  EXPECT_EQ(wrong("N(."), "at byte 4: 1 values are left on the stack at STOP, where one is the result");
  EXPECT_EQ(wrong("K\x01\x86."), "at byte 4: too few values on the stack");
  EXPECT_EQ(wrong("]Na"
                  "a."),
            "at byte 5: too few values on the stack");
  EXPECT_EQ(wrong("](Na."), "at byte 5: too few values on the stack") << "the list is below the mark";
  EXPECT_EQ(wrong("]e."), "at byte 3: there is no mark on the stack");
  EXPECT_EQ(wrong("NNa."), "at byte 4: expected a list to add to, found None");
  EXPECT_EQ(wrong("](NNu."), "at byte 6: expected a dict to add to, found a list");
  EXPECT_EQ(wrong("}(Nu."), "at byte 5: a dict key has no value");
  EXPECT_EQ(wrong("}]Ns."), "at byte 5: a list cannot be a dict key");
  EXPECT_EQ(wrong("h\x05."), "at byte 2: memo number 5 was never set");
  EXPECT_EQ(wrong("Nq\x01h\0."s), "at byte 5: memo number 0 was never set");
  EXPECT_EQ(wrong("\x94."), "at byte 2: too few values on the stack");
}

TEST(Pickle, HugeLengthsCostNothing) {
  EXPECT_EQ(error(header + "X\xff\xff\xff\xff."s),
            "not a readable pickle: at byte 2: the data ends 4294967294 bytes too early");
  EXPECT_EQ(error(header + "Nr\xff\xff\xff\xff."s),
            "not a readable pickle: at byte 3: memo number 4294967295 is out of order");
  EXPECT_EQ(error(header + "\x8a\xff."s), "not a readable pickle: at byte 2: the data ends 7 bytes too early");
  EXPECT_EQ(read("\x95\xff\xff\xff\xff\xff\xff\xff\xffN."), "None") << "nothing is read ahead for a frame";
}

TEST(Pickle, LimitsHaveAPlace) {
  const auto stops = [](const std::string& opcodes, const PickleLimits& limits) {
    return error(header + opcodes + ".", limits).substr(std::string("not a readable pickle: ").size());
  };
  EXPECT_EQ(stops(repeated("]", 2000) + repeated("a", 1999), {.containers = 1000}),
            "at byte 1002: more than 1000 containers");
  EXPECT_EQ(stops("](" + repeated("K\x01", 2000) + "e", {.stack = 1000}),
            "at byte 2002: more than 1000 values in no list or dict");
  EXPECT_EQ(stops("](" + repeated("K\x01", 2000) + "e", {.values = 1000}), "at byte 4004: more than 1000 values");
  EXPECT_EQ(stops(repeated("(", 2000), {.stack = 1000}), "at byte 1002: more than 1000 marks");
  EXPECT_EQ(stops("N" + repeated("\x94", 2000), {.memo = 1000}), "at byte 1003: more than 1000 numbers of the memo");
  EXPECT_EQ(stops("U\x01"
                  "aU\x01"
                  "bU\x01"
                  "c",
                  {.texts = 2}),
            "at byte 8: more than 2 texts");
  // 2^31 numbers of a list, which is how gzip hides gigabytes: no more is read of them than the stack holds.
  const std::string beginning = header + "](";
  std::size_t read_of_it = 0;
  const ByteSource endless = [&](char* into, std::size_t most) {
    for (std::size_t i = 0; i < most; ++i, ++read_of_it)
      into[i] = read_of_it < beginning.size() ? beginning[read_of_it] : 'N';
    return most;
  };
  try {
    static_cast<void>(read_pickle(endless, "", {.stack = 1 << 16}));
    FAIL();
  } catch (const InputError& e) {
    EXPECT_EQ(e.problems().at(0).hint, "no memory snapshot has so many");
  }
  EXPECT_LT(read_of_it, 1U << 20);
}

TEST(Pickle, NestingIsBounded) {
  const auto nested = [](std::size_t depth) { return header + repeated("]", depth) + repeated("a", depth - 1) + "."; };
  EXPECT_NO_THROW(read_pickle(nested(64)));
  EXPECT_EQ(error(nested(65)).substr(0, 51), "not a readable pickle: at byte 131: containers are ");
  EXPECT_THROW(read_pickle(nested(1'000'000)), InputError);
  // The same depth, put together from the inside by way of the memo.
  std::string inside_out = header + "]\x94";
  for (char level = 0; level < 70; ++level) inside_out += std::string("h") + level + "\x85\x94" + "\x86";
  EXPECT_THROW(read_pickle(inside_out + "."), InputError);
}

TEST(Pickle, NothingHoldsItself) {
  EXPECT_EQ(error(header + "]\x94h\0"
                           "a."s),
            "not a readable pickle: at byte 7: a container holds itself");
  EXPECT_EQ(error(header + "]\x94]\x94h\0"
                           "ah\0h\x01"
                           "a\x87."s),
            "not a readable pickle: at byte 15: a container holds itself");
}

TEST(Pickle, SharingDoesNotMultiplyTheWork) {
  // Each list holds the one before it twice: 2^40 lists, if they were walked one by one.
  std::string doubling = header + "]\x94";
  for (char level = 0; level < 40; ++level) doubling += std::string("](h") + level + "h" + level + "e\x94\x86";
  EXPECT_NO_THROW(read_pickle(doubling + "."));
}

}  // namespace
}  // namespace tidemark::tests::pickle_test
