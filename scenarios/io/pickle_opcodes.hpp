#pragma once

#include <cstdint>
#include <string>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// The opcodes of plain data, as Python's pickletools names them: all that a memory snapshot needs.
enum class PickleOpcode : std::uint8_t {
  Mark = '(',
  Stop = '.',
  None = 'N',
  BinInt = 'J',
  BinInt1 = 'K',
  BinInt2 = 'M',
  BinFloat = 'G',
  BinUnicode = 'X',
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
  ShortBinUnicode = 0x8c,
  Memoize = 0x94,
  Frame = 0x95,
};

/// "REDUCE (0x52)", for every opcode up to protocol 5; "0xff" for what is none.
std::string opcode_name(PickleOpcode opcode);

}  // namespace tidemark::scenarios
