#include "scenarios/recordings/pickle/pickle_opcodes.hpp"

#include <string_view>

namespace tidemark::scenarios {
namespace {

struct Name {
  unsigned char opcode;
  std::string_view name;
};

// All 68 opcodes of CPython 3.8 to 3.13, Lib/pickletools.py.
constexpr Name names[] = {
    {'I', "INT"},
    {'J', "BININT"},
    {'K', "BININT1"},
    {'M', "BININT2"},
    {'L', "LONG"},
    {0x8a, "LONG1"},
    {0x8b, "LONG4"},
    {'S', "STRING"},
    {'T', "BINSTRING"},
    {'U', "SHORT_BINSTRING"},
    {'B', "BINBYTES"},
    {'C', "SHORT_BINBYTES"},
    {0x8e, "BINBYTES8"},
    {0x96, "BYTEARRAY8"},
    {0x97, "NEXT_BUFFER"},
    {0x98, "READONLY_BUFFER"},
    {'N', "NONE"},
    {0x88, "NEWTRUE"},
    {0x89, "NEWFALSE"},
    {'V', "UNICODE"},
    {0x8c, "SHORT_BINUNICODE"},
    {'X', "BINUNICODE"},
    {0x8d, "BINUNICODE8"},
    {'F', "FLOAT"},
    {'G', "BINFLOAT"},
    {']', "EMPTY_LIST"},
    {'a', "APPEND"},
    {'e', "APPENDS"},
    {'l', "LIST"},
    {')', "EMPTY_TUPLE"},
    {'t', "TUPLE"},
    {0x85, "TUPLE1"},
    {0x86, "TUPLE2"},
    {0x87, "TUPLE3"},
    {'}', "EMPTY_DICT"},
    {'d', "DICT"},
    {'s', "SETITEM"},
    {'u', "SETITEMS"},
    {0x8f, "EMPTY_SET"},
    {0x90, "ADDITEMS"},
    {0x91, "FROZENSET"},
    {'0', "POP"},
    {'2', "DUP"},
    {'(', "MARK"},
    {'1', "POP_MARK"},
    {'g', "GET"},
    {'h', "BINGET"},
    {'j', "LONG_BINGET"},
    {'p', "PUT"},
    {'q', "BINPUT"},
    {'r', "LONG_BINPUT"},
    {0x94, "MEMOIZE"},
    {0x82, "EXT1"},
    {0x83, "EXT2"},
    {0x84, "EXT4"},
    {'c', "GLOBAL"},
    {0x93, "STACK_GLOBAL"},
    {'R', "REDUCE"},
    {'b', "BUILD"},
    {'i', "INST"},
    {'o', "OBJ"},
    {0x81, "NEWOBJ"},
    {0x92, "NEWOBJ_EX"},
    {0x80, "PROTO"},
    {'.', "STOP"},
    {0x95, "FRAME"},
    {'P', "PERSID"},
    {'Q', "BINPERSID"},
};

}  // namespace

std::string opcode_name(PickleOpcode opcode) {
  const auto byte = static_cast<unsigned char>(opcode);
  constexpr std::string_view digits = "0123456789abcdef";
  const std::string hex = {'0', 'x', digits[byte >> 4], digits[byte & 15]};
  for (const Name& known : names) {
    if (known.opcode == byte) return std::string(known.name) + " (" + hex + ")";
  }
  return hex;
}

std::string_view reason_to_refuse(PickleOpcode opcode) {
  switch (static_cast<unsigned char>(opcode)) {
    case 'I':
    case 'L':
    case 'F':
    case 'S':
    case 'V':
    case 'g':
    case 'p':
      return "it is of protocol 0, which no pickle of protocols 2 to 5 holds";
    case 'c':
    case 0x93:
      return "it names a class or a function";
    case 0x82:
    case 0x83:
    case 0x84:
      return "it names a class by its number in a registry";
    case 'R':
    case 'b':
    case 'i':
    case 'o':
    case 0x81:
    case 0x92:
      return "it makes an object";
    case 'P':
    case 'Q':
      return "it names an object outside of the file";
    case 0x97:
    case 0x98:
      return "it stands for a buffer outside of the file";
    default:
      return "no protocol has it";
  }
}

}  // namespace tidemark::scenarios
