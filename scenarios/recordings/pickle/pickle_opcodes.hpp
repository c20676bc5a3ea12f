#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// The opcodes of plain data in protocols 2 to 5, as Python's pickletools names them: all that a memory snapshot needs,
/// and what else a pickler writes for numbers, texts, bytes and containers. Those of Python 2 are among them; those of
/// protocol 0, which are lines of text, are not: no pickler of a later protocol writes them.
enum class PickleOpcode : std::uint8_t {
  Mark = '(',
  Pop = '0',
  PopMark = '1',
  Dup = '2',
  Stop = '.',
  None = 'N',
  BinInt = 'J',
  BinInt1 = 'K',
  BinInt2 = 'M',
  BinFloat = 'G',
  BinUnicode = 'X',
  BinString = 'T',
  ShortBinString = 'U',
  BinBytes = 'B',
  ShortBinBytes = 'C',
  EmptyList = ']',
  EmptyTuple = ')',
  EmptyDict = '}',
  List = 'l',
  Tuple = 't',
  Dict = 'd',
  Append = 'a',
  Appends = 'e',
  SetItem = 's',
  SetItems = 'u',
  BinGet = 'h',
  LongBinGet = 'j',
  BinPut = 'q',
  LongBinPut = 'r',
  Proto = 0x80,
  Tuple1 = 0x85,
  Tuple2 = 0x86,
  Tuple3 = 0x87,
  NewTrue = 0x88,
  NewFalse = 0x89,
  Long1 = 0x8a,
  Long4 = 0x8b,
  ShortBinUnicode = 0x8c,
  BinUnicode8 = 0x8d,
  BinBytes8 = 0x8e,
  EmptySet = 0x8f,
  AddItems = 0x90,
  FrozenSet = 0x91,
  Memoize = 0x94,
  Frame = 0x95,
  ByteArray8 = 0x96,
};

/// "REDUCE (0x52)", for every opcode up to protocol 5; "0xff" for what is none.
std::string opcode_name(PickleOpcode opcode);

/// Why an opcode that is not of plain data is refused: "it makes an object".
std::string_view reason_to_refuse(PickleOpcode opcode);

}  // namespace tidemark::scenarios
