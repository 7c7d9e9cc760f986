/* pickle_test.c - values of every opcode, names that are known, opaque or refused, and hostile
 * pickles. */
#include "tests/check.h"
#include "tests/pickle_made.h"

#include <inttypes.h>

#include "base/text.h"
#include "formats/pickle.h"

/* A literal with NULs inside, as pointer and size. */
#define P(text) ("\x80\x02" text "."), sizeof("\x80\x02" text ".") - 1

static sheaf_pickle_doc *parse(const char *bytes, size_t size)
{
    sheaf_pickle_doc *doc = NULL;
    CHECK_OK(sheaf__pickle_parse(&doc, NULL, bytes, size));
    return doc;
}

static sheaf_status *parse_only(const char *bytes, size_t size)
{
    sheaf_pickle_doc *doc = NULL;
    sheaf_status *st = sheaf__pickle_parse(&doc, NULL, bytes, size);
    sheaf__pickle_free(doc);
    return st;
}

/* ---- a value as text, to compare ---- */

static void spell(sheaf_text *out, const sheaf_pickle_doc *doc, const sheaf_pickle *v);

static void spell_items(sheaf_text *out, const sheaf_pickle_doc *doc, const sheaf_pickle *v,
                        const char *ends)
{
    sheaf__text_bytes(out, ends, 1);
    for (int64_t i = 0; i < v->as.items.count; i++) {
        sheaf__text_add(out, i > 0 ? "," : "");
        if (v->kind == SHEAF_PICKLE_DICT) {
            spell(out, doc, sheaf__pickle_key(v, i));
            sheaf__text_add(out, ":");
            spell(out, doc, sheaf__pickle_value(v, i));
        } else {
            spell(out, doc, v->as.items.at[i]);
        }
    }
    sheaf__text_bytes(out, ends + 1, 1);
}

static void spell_object(sheaf_text *out, const sheaf_pickle_doc *doc, const sheaf_pickle_object *o)
{
    spell(out, doc, o->class);
    spell(out, doc, o->args);
    const sheaf_pickle *more[] = { o->state, o->list, o->dict };
    for (int i = 0; i < 3; i++)
        if (more[i] != NULL) {
            sheaf__text_bytes(out, &"@+#"[i], 1);
            spell(out, doc, more[i]);
        }
}

static void spell(sheaf_text *out, const sheaf_pickle_doc *doc, const sheaf_pickle *v)
{
    const sheaf_pickle_tensor *t = sheaf__pickle_tensor(doc, v);
    switch (v->kind) {
    case SHEAF_PICKLE_NONE: sheaf__text_add(out, "None"); break;
    case SHEAF_PICKLE_BOOL: sheaf__text_add(out, v->as.number ? "True" : "False"); break;
    case SHEAF_PICKLE_INT: sheaf__text_add(out, "%" PRId64, v->as.number); break;
    case SHEAF_PICKLE_BIG: sheaf__text_add(out, "big%zu", v->as.text.size); break;
    case SHEAF_PICKLE_FLOAT: sheaf__text_add(out, "%g", v->as.real); break;
    case SHEAF_PICKLE_STRING: sheaf__text_add(out, "'%s'", v->as.text.at); break;
    case SHEAF_PICKLE_BYTES:
        sheaf__text_add(out, "b");
        for (size_t i = 0; i < v->as.text.size; i++)
            sheaf__text_add(out, "%02x", (unsigned char)v->as.text.at[i]);
        break;
    case SHEAF_PICKLE_LIST: spell_items(out, doc, v, "[]"); break;
    case SHEAF_PICKLE_TUPLE: spell_items(out, doc, v, "()"); break;
    case SHEAF_PICKLE_SET: spell_items(out, doc, v, "<>"); break;
    case SHEAF_PICKLE_DICT: spell_items(out, doc, v, "{}"); break;
    case SHEAF_PICKLE_GLOBAL:
        sheaf__text_add(out, "%s.%s", v->as.global.module, v->as.global.name);
        break;
    case SHEAF_PICKLE_OBJECT: spell_object(out, doc, v->as.object); break;
    case SHEAF_PICKLE_DTYPE: sheaf__text_add(out, "%s", sheaf_dtype_name(v->as.dtype)); break;
    case SHEAF_PICKLE_STORAGE: sheaf__text_add(out, "storage%" PRId64, v->as.number); break;
    case SHEAF_PICKLE_TENSOR:
        sheaf__text_add(out, "T%" PRId64 "%s+%" PRId64, t->storage, sheaf_dtype_name(t->dtype),
                        t->offset);
        for (int d = 0; d < t->ndim; d++)
            sheaf__text_add(out, "|%" PRId64 "*%" PRId64, t->shape[d], t->stride[d]);
        break;
    case SHEAF_PICKLE_PERSISTENT:
        sheaf__text_add(out, "id");
        spell(out, doc, v->as.items.at[0]);
        break;
    case SHEAF_PICKLE_AGAIN: sheaf__text_add(out, "AGAIN"); break;
    }
}

static char *spelled(const char *bytes, size_t size)
{
    sheaf_text text = { 0 };
    char *out = NULL;
    sheaf_pickle_doc *doc = parse(bytes, size);
    spell(&text, doc, doc->root);
    sheaf__pickle_free(doc);
    CHECK_OK(sheaf__text_take(&out, &text));
    return out;
}

/* ---- values ---- */

#define ODICT "ccollections\nOrderedDict\n"
#define F32_ID(key, count)                                                                         \
    "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" key "X\3\0\0\0cpuK" count "tQ"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n"
#define TAIL_V2 "\x89" ODICT ")RtR"

static const struct {
    const char *bytes;
    size_t size;
    const char *want;
} values[] = {
    { P("N"), "None" },
    { P("\x88"), "True" },
    { P("\x89"), "False" },
    { P("K\xff"), "255" },
    { P("M\xff\xff"), "65535" },
    { P("J\xff\xff\xff\xff"), "-1" },
    { P("\x8a\0"), "0" },
    { P("\x8a\2\x7f\xff"), "-129" },
    { P("\x8a\1\x80"), "-128" },
    { P("\x8a\1\x7f"), "127" },
    { P("\x8a\x08\0\0\0\0\0\0\0\x80"), "-9223372036854775808" },
    { P("\x8a\x09\0\0\0\0\0\0\0\0\1"), "big9" },
    { P("\x8b\1\0\0\0\5"), "5" },
    { P("G\x3f\xf8\0\0\0\0\0\0"), "1.5" },
    { P("X\2\0\0\0\xc3\xa9"), "'\xc3\xa9'" },
    { P("\x8c\1a"), "'a'" },
    { P("\x8d\1\0\0\0\0\0\0\0a"), "'a'" },
    { P("U\1a"), "'a'" },
    { P("U\1\xff"), "bff" },
    { P("T\1\0\0\0a"), "'a'" },
    { P("C\2\0\xff"), "b00ff" },
    { P("B\1\0\0\0\x80"), "b80" },
    { P("\x8e\1\0\0\0\0\0\0\0a"), "b61" },
    { P("\x96\1\0\0\0\0\0\0\0a"), "b61" },
    { P(")"), "()" },
    { P("K\1\x85"), "(1)" },
    { P("K\1K\2\x86"), "(1,2)" },
    { P("K\1K\2K\3\x87"), "(1,2,3)" },
    { P("(K\1K\2K\3K\4t"), "(1,2,3,4)" },
    { P("]K\1aK\2a"), "[1,2]" },
    { P("](K\1K\2K\3K\4K\5e"), "[1,2,3,4,5]" },
    { P("}X\1\0\0\0aK\1s"), "{'a':1}" },
    { P("}(K\1K\2K\1K\3u"), "{1:2,1:3}" },
    { P("\x8f(K\1K\2\x90"), "<1,2>" },
    { P("(K\1K\2\x91"), "<1,2>" },
    { P("K\1q\0K\2h\0\x87"), "(1,2,1)" },
    { P("K\1r\1\0\0\0K\2j\1\0\0\0\x87"), "(1,2,1)" },
    { P("K\1\x94K\2\x94h\0h\1(tt"), NULL }, /* no mark for the outer tuple */
    { P("(K\1\x94K\2\x94h\0h\1t"), "(1,2,1,2)" },
    { P("K\1K\2"
        "0"),
      "1" },
    { P("K\1(K\2K\3"
        "1"),
      "1" },
    { P("\x95\0\0\0\0\0\0\0\0N"), "None" },
    /* names */
    { P(ODICT ")R"), "{}" },
    { P(ODICT ")R(X\1\0\0\0aK\1u}X\1\0\0\0bNsb"), "{'a':1}" },
    { P(ODICT "](]X\1\0\0\0aaK\1aee\x85R"), NULL }, /* appends to a number */
    { P(ODICT "]]X\1\0\0\0aaK\1aa\x85R"), "{'a':1}" },
    { P("ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(K\1K\2u"), "{1:2}" },
    { P("ccollections\nCounter\n}K\1K\2s\x85RK\3K\4s"), "{1:2,3:4}" },
    { P("}q\0K\1K\2sccollections\nCounter\nh\0\x85RK\3K\4sh\0K\5K\6s\x87"),
      "({1:2,5:6},{1:2,3:4},{1:2,5:6})" },
    { P("c__builtin__\nset\n]K\1a\x85R"), "<1>" },
    { P("cbuiltins\nfrozenset\n]K\1a\x85R"), "<1>" },
    { P("ctorch\nSize\nK\2K\3\x86\x85R"), "(2,3)" },
    { P("ctorch\nbfloat16\n"), "BF16" },
    { P("c_codecs\nencode\nX\3\0\0\0a\xc3\xbfX\6\0\0\0latin1\x86R"), "b61ff" },
    { P("c__builtin__\nbytes\n)R"), "b" },
    { P("cbuiltins\nbytearray\nC\1a\x85R"), "b61" },
    /* opaque */
    { P("cargparse\nNamespace\n)\x81}X\1\0\0\0aK\1sb"), "argparse.Namespace()@{'a':1}" },
    { P("cdeepspeed.a\nZeroStage\nK\2\x85R"), "deepspeed.a.ZeroStage(2)" },
    { P("cdeepspeed.a\nfragment_address\n)\x81"), "deepspeed.a.fragment_address()" },
    { P("cmegatron.core\nfunction\n"), "megatron.core.function" },
    { P("cbuiltins\ngetattr\ncmegatron.enums\nBackend\nX\4\0\0\0auto\x86R"),
      "megatron.enums.Backend(megatron.enums.Backend,'auto')" },
    { P("ccopy_reg\n_reconstructor\nca.b\nC\nc__builtin__\nobject\nN\x87R"),
      "a.b.C(a.b.C,__builtin__.object,None)" },
    { P("ccollections\ndeque\n)R(K\1K\2e"), "collections.deque()+[1,2]" },
    { P("ca\nDict\n)\x81(K\1K\2u"), "a.Dict()#{1:2}" },
    { P("ca\nC\n)}X\1\0\0\0kK\1s\x92"), "a.C()#{'k':1}" },
    { P("cpathlib\nPosixPath\n)R"), "pathlib.PosixPath()" },
    { P("K\5Q"), "id5" },
    /* tensors */
    { P(REBUILD "(" F32_ID("0", "\x0c") "K\1(K\2K\3t(K\4K\1t" TAIL_V2), "T0F32+1|2*4|3*1" },
    { P(REBUILD "(" F32_ID("0", "\4") "K\0(K\3K\4t(K\0K\1t" TAIL_V2), "T0F32+0|3*0|4*1" },
    { P(REBUILD "(" F32_ID("0", "\1") "K\0))" TAIL_V2), "T0F32+0" },
    { P(REBUILD "(" F32_ID("0", "\0") "K\7(K\0t(K\1t" TAIL_V2), "T0F32+0|0*1" },
    { P("ctorch._utils\n_rebuild_parameter\n(" REBUILD "(" F32_ID("0", "\1") "K\0))" TAIL_V2
                                                                             "\x89" ODICT ")RtR"),
      "T0F32+0" },
    { P("ctorch._tensor\n_rebuild_from_type_v2\n(" REBUILD
        "ctorch\nTensor\n(" F32_ID("0", "\1") "K\0))\x89" ODICT ")Rt}tR"),
      "T0F32+0" },
    { P("ctorch._utils\n_rebuild_tensor_v3\n((X\7\0\0\0storagectorch.storage\nUntypedStorage\nX\1\0\0\0sX\3\0\0\0cpuK\6tQ"
        "K\1(K\2t(K\1t\x89" ODICT ")Rctorch\nuint16\ntR"),
      "T0U16+1|2*1" },
    { P(REBUILD "(" F32_ID("0", "\1") "K\0))\x89" ODICT ")R}tR"), "T0F32+0" },
    { P(REBUILD "(" F32_ID("0", "\1") "K\0))\x89" ODICT ")R}X\3\0\0\0neg\x88stR"),
      "torch._utils._rebuild_tensor_v2(storage0,0,(),(),False,{},{'neg':True})" },
    { P(F32_ID("0", "\1") "ctorch._utils\n_rebuild_qtensor\n(" F32_ID("0", "\1") "tR\x86"),
      "(storage0,torch._utils._rebuild_qtensor(storage0))" },
    { P(REBUILD
        "((X\7\0\0\0storagectorch\nComplexDoubleStorage\nX\1\0\0\0sX\3\0\0\0cpuK\6tQK\0))\x89" ODICT
        ")RtR"),
      "torch._utils._rebuild_tensor_v2(storage0,0,(),(),False,{})" },
    { P("(X\6\0\0\0moduleca.b\nNet\nX\1\0\0\0fX\1\0\0\0stQ)\x81"), "a.b.Net()" },
};

TEST(test_parse__every_opcode_and_known_name)
{
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        if (values[i].want == NULL) {
            CHECK_FAILS(parse_only(values[i].bytes, values[i].size), SHEAF_E_FORMAT,
                        "pickle, byte");
            continue;
        }
        char *text = spelled(values[i].bytes, values[i].size);
        if (strcmp(text, values[i].want) != 0)
            fail_msg("row %zu: %s, wanted %s", i, text, values[i].want);
        free(text);
    }
}

TEST(test_parse__every_cut_of_every_value_is_refused)
{
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        for (size_t n = 0; n < values[i].size; n++) {
            char *part = malloc(n + 1); /* exactly as long, for the sanitizer */
            memcpy(part, values[i].bytes, n);
            sheaf_status *st = parse_only(part, n);
            if (st == NULL)
                fail_msg("row %zu cut at %zu was accepted", i, n);
            sheaf_status_free(st);
            free(part);
        }
}

/* Every bit flipped gives a value or a status; what matters is that the sanitizers stay silent. */
TEST(test_parse__every_flipped_bit_is_survived)
{
    int refused = 0;
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        for (size_t bit = 0; bit < values[i].size * 8; bit++) {
            char *copy = malloc(values[i].size);
            memcpy(copy, values[i].bytes, values[i].size);
            copy[bit / 8] ^= (char)(1 << bit % 8);
            sheaf_status *st = parse_only(copy, values[i].size);
            refused += st != NULL;
            sheaf_status_free(st);
            free(copy);
        }
    assert_true(refused > 1000);
}

TEST(test_parse__refused_with_a_reason)
{
    static const struct {
        const char *bytes;
        size_t size;
        sheaf_code code;
        const char *part;
    } rows[] = {
        { "", 0, SHEAF_E_UNSUPPORTED, "protocol 2 to 5" },
        { "\x80\x06N.", 4, SHEAF_E_UNSUPPORTED, "2 to 5" },
        { "\x80\x01N.", 4, SHEAF_E_UNSUPPORTED, "2 to 5" },
        { "(lp0\n.", 6, SHEAF_E_UNSUPPORTED, "protocol 2 to 5" },
        { P("I1\n"), SHEAF_E_FORMAT, "byte 0x49" },
        { P("(i__main__\nx\n"), SHEAF_E_FORMAT, "byte 0x69" },
        { P("\x82\1"), SHEAF_E_FORMAT, "byte 0x82" },
        { P("\x97"), SHEAF_E_FORMAT, "byte 0x97" },
        { P("\x01"), SHEAF_E_FORMAT, "byte 0x01" },
        { P("N.N"), SHEAF_E_FORMAT, "nothing after its end" },
        { P("NN"), SHEAF_E_FORMAT, "one value at the end" },
        { P("("), SHEAF_E_FORMAT, "one value at the end" },
        { P("t"), SHEAF_E_FORMAT, "a mark" },
        { P("K\1(\x85"), SHEAF_E_FORMAT, "a value on the stack" },
        { P("X\xff\xff\xff\xff"
            "a"),
          SHEAF_E_FORMAT, "cut short" },
        { P("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
            "a"),
          SHEAF_E_FORMAT, "cut short" },
        { P("X\1\0\0\0\xff"), SHEAF_E_FORMAT, "UTF-8" },
        { P("h\0"), SHEAF_E_FORMAT, "memo number" },
        { P("Nr\xff\xff\xff\xff"), SHEAF_E_FORMAT, "memo number below" },
        { P("Nr\x20\0\0\0"), SHEAF_E_FORMAT,
          "memo number below" }, /* no place can be had for less than a byte */
        { P("}K\1a"), SHEAF_E_FORMAT, "container" },
        { P("}(K\1u"), SHEAF_E_FORMAT, "keys with values" },
        { P("K\1K\2s"), SHEAF_E_FORMAT, "a value on the stack" },
        { P("NNb"), SHEAF_E_FORMAT, "an object to fill" },
        { P("ca\nB\nNb"), SHEAF_E_FORMAT, "an object to fill" },
        { P("ca\nB\nNR"), SHEAF_E_FORMAT, "a tuple" },
        { P("K\1)\x81"), SHEAF_E_FORMAT, "a class" },
        { P("c\n\n"), SHEAF_E_FORMAT, "a module and a name" },
        { P("K\1K\1\x93"), SHEAF_E_FORMAT, "a module and a name" },
        { P("ctorch\nSize\nK\1\x85R"), SHEAF_E_FORMAT, "a list, tuple" },
        { P("c_codecs\nencode\nX\3\0\0\0\xe2\x82\xacX\6\0\0\0latin1\x86R"), SHEAF_E_FORMAT,
          "below 256" },
        { P("}X\1\0\0\0w" REBUILD "(" F32_ID("0", "\7") "K\1(K\2K\3t(K\4K\1t" TAIL_V2 "s"),
          SHEAF_E_FORMAT, "'w': a tensor | inside the 7 elements of its storage | element 7" },
        { P(REBUILD "(" F32_ID(
              "0",
              "\1") "K\0(K\0\x8a\x08\0\0\0\0\0\0\0\x40\x8a\x08\0\0\0\0\0\0\0\x40t(K\1K\1K\1t" TAIL_V2),
          SHEAF_E_FORMAT, "beyond 2^63" }, /* [0, 2^62, 2^62] */
        { P(REBUILD "(" F32_ID(
              "0",
              "\1") "K\0(\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7ft(\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7ft" TAIL_V2),
          SHEAF_E_FORMAT, "beyond 2^63" },
        { P(REBUILD
            "(" F32_ID("0", "\1") "K\0(\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7ft(K\0t" TAIL_V2),
          SHEAF_E_FORMAT, "beyond 2^63" },
        { P(REBUILD "(" F32_ID("0", "\4") "K\3(K\2t(J\xff\xff\xff\xfft" TAIL_V2), SHEAF_E_FORMAT,
          "none of them negative" },
        { P(REBUILD "(" F32_ID("0", "\4") "J\xff\xff\xff\xff(K\2t(K\1t" TAIL_V2), SHEAF_E_FORMAT,
          "none of them negative" },
        { P(REBUILD "(" F32_ID("0", "\4") "K\0(K\2t(K\1K\1t" TAIL_V2), SHEAF_E_FORMAT,
          "as many sizes as strides" },
        { P(REBUILD "(" F32_ID(
              "0", "\4") "K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1t(K\1K\1K\1K\1K\1K\1K\1K\1K\1t" TAIL_V2),
          SHEAF_E_UNSUPPORTED, "at most 8 axes" },
        { P("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0aX\3\0\0\0cpu\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7ftQ"),
          SHEAF_E_FORMAT, "2^63 bytes" },
        { P("(X\7\0\0\0storagectorch\nFloatStorage\nK\1X\3\0\0\0cpuK\1tQ"), SHEAF_E_FORMAT,
          "a key" },
        { P("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0aX\3\0\0\0cpuK\4(X\1\0\0\0bK\3K\2ttQ"),
          SHEAF_E_FORMAT, "a view inside" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        CHECK_FAILS(parse_only(rows[i].bytes, rows[i].size), rows[i].code, rows[i].part);
}

/* ---- what must never be called ---- */

/* Modules, and a name in each. */
static const char attacks[] =
    "os system, posix system, nt system, subprocess Popen, subprocess check_output, "
    "builtins eval, __builtin__ eval, builtins exec, builtins compile, builtins open, "
    "builtins __import__, builtins print, __builtin__ apply, builtins breakpoint, "
    "builtins setattr, builtins globals, builtins map, sys exit, runpy run_path, "
    "importlib import_module, shutil rmtree, socket socket, ctypes CDLL, pty spawn, "
    "webbrowser open, operator attrgetter, operator methodcaller, pickle loads, marshal loads, "
    "types FunctionType, types CodeType, code InteractiveInterpreter, timeit timeit, "
    "cProfile run, pdb run, bdb Bdb, asyncio run, pip main, pydoc pipepager, "
    "http.server HTTPServer, urllib.request urlopen, tempfile mktemp, functools reduce, "
    "itertools starmap, _posixsubprocess fork_exec, _io FileIO, torch.serialization os.system, "
    "torch sys.Exit, torch os.system, torch.os system, numpy.os System, "
    "numpy.testing._private.utils runstring, torch load, torch.hub load, evil run, __main__ run, "
    "dill._dill _create_code, a.B __globals__, codecs open, collections namedtuple, "
    "inspect getattr_static, logging.config listen, io open";

static sheaf_status *attack(const char *module, const char *name, bool on_stack)
{
    char bytes[256];
    const int n =
        on_stack ? snprintf(bytes, sizeof bytes, "\x80\x04\x8c%c%s\x8c%c%s\x93\x8c\x02id\x85R.",
                            (char)strlen(module), module, (char)strlen(name), name)
                 : snprintf(bytes, sizeof bytes,
                            "\x80\x02"
                            "c%s\n%s\nU\x02id\x85R.",
                            module, name);
    return parse_only(bytes, (size_t)n);
}

TEST(test_parse__a_call_is_named_and_refused)
{
    char module[80], name[80], both[200];
    int count = 0, length = 0;
    for (const char *at = attacks; sscanf(at, "%79s %79[^,]%n", module, name, &length) == 2;
         at += length + (at[length] == ','), count++) {
        snprintf(both, sizeof both, "%s.%s", module, name);
        CHECK_FAILS(attack(module, name, false), SHEAF_E_UNSAFE, both);
        CHECK_FAILS(attack(module, name, true), SHEAF_E_UNSAFE, both);
    }
    assert_int_equal(count, 63);
}

/* As a part of another module's name too, where what is named looks like a class. */
TEST(test_parse__what_reaches_into_the_machine_is_refused_anywhere)
{
    static const char *const machine[] = {
        "__builtin__", "__builtins__",   "builtins",   "commands", "ctypes",     "importlib",
        "nt",          "ntpath",         "os",         "pickle",   "posix",      "posixpath",
        "pty",         "runpy",          "shutil",     "socket",   "subprocess", "sys",
        "__globals__", "__subclasses__", "__import__", "__code__", "__reduce__",
    };
    for (size_t i = 0; i < ARRAY_LEN(machine); i++) {
        char module[80], both[100];
        snprintf(module, sizeof module, "torch.%s", machine[i]);
        snprintf(both, sizeof both, "%s.Thing", module);
        CHECK_FAILS(attack(module, "Thing", false), SHEAF_E_UNSAFE, both);
        snprintf(module, sizeof module, "%s.Thing", machine[i]);
        CHECK_FAILS(attack("torch", module, true), SHEAF_E_UNSAFE, module);
    }
    CHECK_OK(attack("torch.other", "Thing", false)); /* or nothing would be shown */
}

TEST(test_parse__calls_by_detours_are_refused)
{
    /* A name that is not called may still be what is: partial(os.system), getattr of a function or
     * an object, a called object. */
    CHECK_FAILS(parse_only(P("cposix\nsystem\n")), SHEAF_E_UNSAFE, "posix.system");
    CHECK_FAILS(parse_only(P("cfunctools\npartial\ncposix\nsystem\n\x85R")), SHEAF_E_UNSAFE,
                "posix.system");
    CHECK_FAILS(parse_only(P("cbuiltins\ngetattr\nca\nB\nX\7\0\0\0__doc__\x86R")), SHEAF_E_UNSAFE,
                "getattr");
    CHECK_FAILS(parse_only(P("cbuiltins\ngetattr\nca\nb\nX\1\0\0\0c\x86R")), SHEAF_E_UNSAFE,
                "getattr");
    CHECK_FAILS(parse_only(P("cbuiltins\ngetattr\nca\nB\n)RX\1\0\0\0c\x86R")), SHEAF_E_UNSAFE,
                "getattr");
    CHECK_FAILS(parse_only(P("ca\nB\n)R)R")), SHEAF_E_UNSAFE, "no class");
    CHECK_FAILS(
        parse_only(P("ctorch._tensor\n_rebuild_from_type_v2\n(cevil\nrun\nctorch\nTensor\n)NtR")),
        SHEAF_E_UNSAFE, "evil.run");
    CHECK_FAILS(parse_only(P("cposix\nsystem\n)\x81")), SHEAF_E_UNSAFE, "posix.system");
    /* No control sequence of a terminal gets into the message. */
    CHECK_FAILS(parse_only(P("cposix\nsys\x1b[2Jtem\n)R")), SHEAF_E_UNSAFE, "[2Jtem");
}

/* ---- bounds ---- */

TEST(test_parse__depth_is_limited)
{
    for (int depth = SHEAF_PICKLE_MAX_DEPTH - 1; depth <= SHEAF_PICKLE_MAX_DEPTH + 1; depth++) {
        sheaf_text text = { 0 };
        sheaf__text_bytes(&text, "\x80\x02", 2);
        for (int i = 0; i < depth; i++)
            sheaf__text_add(&text, "]");
        for (int i = 1; i < depth; i++)
            sheaf__text_add(&text, "a");
        sheaf__text_add(&text, ".");
        if (depth <= SHEAF_PICKLE_MAX_DEPTH)
            CHECK_OK(parse_only(text.at, text.size));
        else
            CHECK_FAILS(parse_only(text.at, text.size), SHEAF_E_FORMAT, "inside each other");
        sheaf__text_release(&text);
    }
}

/* A deep value that is reached a second time, further down, where it is too deep. */
TEST(test_parse__depth_counts_what_was_seen_before)
{
    sheaf_text text = { 0 };
    sheaf__text_bytes(&text, "\x80\x02]", 3);
    for (int i = 0; i < 300; i++)
        sheaf__text_add(&text, "]");
    for (int i = 1; i < 300; i++)
        sheaf__text_add(&text, "a");
    sheaf__text_bytes(&text, "q\0a", 3);
    for (int i = 0; i < 300; i++)
        sheaf__text_add(&text, "]");
    sheaf__text_bytes(&text, "h\0a", 3);
    for (int i = 1; i < 300; i++)
        sheaf__text_add(&text, "a");
    sheaf__text_add(&text, "a.");
    CHECK_FAILS(parse_only(text.at, text.size), SHEAF_E_FORMAT, "inside each other");
    sheaf__text_release(&text);
}

TEST(test_parse__cycles_are_cut)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *want;
    } rows[] = {
        { P("]q\0h\0a"), "[AGAIN]" },
        { P("}q\0K\1h\0s"), "{1:AGAIN}" },
        { P("]q\0]q\1h\0aa"), "[[AGAIN]]" },
        { P("ca\nB\n)\x81q\0}X\6\0\0\0parenth\0sb"), "a.B()@{'parent':AGAIN}" },
        { P("]q\0K\1ah\0\x86"), "([1],[1])" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *text = spelled(rows[i].bytes, rows[i].size);
        assert_string_equal(text, rows[i].want);
        free(text);
    }
}

/* Six bytes that copy a megabyte, again and again. */
TEST(test_parse__memory_is_bounded_by_the_bytes)
{
    enum { TEXT = 1 << 20, TIMES = 20000 };
    sheaf_text text = { 0 };
    char *zeros = calloc(1, TEXT);
    sheaf__text_bytes(&text,
                      "\x80\x02"
                      "c_codecs\nencode\nq\0X\0\0\x10\0",
                      25);
    sheaf__text_bytes(&text, zeros, TEXT);
    sheaf__text_bytes(&text, "X\6\0\0\0latin1\x86q\1", 14);
    for (int i = 0; i < TIMES; i++)
        sheaf__text_bytes(&text, "h\0h\1R0", 6);
    sheaf__text_add(&text, ".");
    CHECK_FAILS(parse_only(text.at, text.size), SHEAF_E_FORMAT, "bytes of memory");
    sheaf__text_release(&text);
    free(zeros);
}

/* Ten thousand tensors in one storage, as many storages, and equal ones told apart by what they
 * say. */
TEST(test_parse__storages_are_told_apart)
{
    sheaf_text text = { 0 };
    sheaf__text_bytes(&text, "\x80\x02](", 4);
    for (int i = 0; i < 3000; i++) {
        char id[200];
        const int n =
            snprintf(id, sizeof id,
                     "(U\x07storagec%s\nFloatStorage\nU\x04%04dU\x03"
                     "cpuK%ctQ",
                     i % 7 == 0 ? "torch.cuda" : "torch", i % 1000, (char)(i / 1000 == 2 ? 9 : 8));
        sheaf__text_bytes(&text, id, (size_t)n);
    }
    sheaf__text_add(&text, "e.");
    sheaf_pickle_doc *doc = parse(text.at, text.size);
    assert_int_equal(doc->nstorages, 2000);
    assert_int_equal(sheaf__pickle_count(doc->root), 3000);
    assert_int_equal(sheaf__pickle_item(doc->root, 1234)->as.number, 234);
    assert_int_equal(sheaf__pickle_item(doc->root, 2234)->as.number, 1234);
    sheaf__pickle_free(doc);
    sheaf__text_release(&text);
}

/* ---- looking ---- */

TEST(test_get__fields_of_dicts_and_objects)
{
    sheaf_pickle_doc *doc = parse(P(
        "}(X\4\0\0\0argscargparse\nNamespace\n)\x81}(X\2\0\0\0tpK\2X\2\0\0\0tpK\4X\1\0\0\0sX\2\0\0\0hiubX\1\0\0\0l]K\7a"
        "X\5\0\0\0slotsca\nS\n)\x81N}X\1\0\0\0xK\5s\x86"
        "bu"));
    int64_t n = 0;
    double real = 0;
    assert_true(sheaf__pickle_int(&n, sheaf__pickle_path(doc->root, "args", "tp", NULL)));
    assert_int_equal(n, 4); /* the last one */
    assert_true(sheaf__pickle_int(&n, sheaf__pickle_path(doc->root, "slots", "x", NULL)));
    assert_int_equal(n, 5);
    assert_string_equal(sheaf__pickle_text(sheaf__pickle_path(doc->root, "args", "s", NULL)), "hi");
    assert_null(sheaf__pickle_path(doc->root, "args", "no", "further", NULL));
    assert_null(sheaf__pickle_get(NULL, "x"));
    assert_null(sheaf__pickle_get(sheaf__pickle_get(doc->root, "l"), "x"));
    assert_true(
        sheaf__pickle_float(&real, sheaf__pickle_item(sheaf__pickle_get(doc->root, "l"), 0)));
    assert_true(real == 7);
    assert_null(sheaf__pickle_item(sheaf__pickle_get(doc->root, "l"), 1));
    assert_false(sheaf__pickle_int(&n, sheaf__pickle_get(doc->root, "l")));
    assert_true(sheaf__pickle_is_object(sheaf__pickle_get(doc->root, "args"), NULL, "Namespace"));
    assert_false(
        sheaf__pickle_is_object(sheaf__pickle_get(doc->root, "args"), "types", "Namespace"));
    sheaf__pickle_free(doc);
}

#define DTYPE(name) "cnumpy\ndtype\nU\2" name "\x89\x88\x87R(K\3U\1<NNNtb"

TEST(test_number__numpy_scalars)
{
    int64_t n = 0;
    double real = 0;
    sheaf_pickle_doc *doc = parse(P("]cnumpy.core.multiarray\nscalar\n" DTYPE(
        "i2") "C\2\xfe\xff\x86R"
              "a"
              "cnumpy._core.multiarray\nscalar\n" DTYPE(
                  "f4") "C\4\0\0\xc0\x3f\x86R"
                        "a"
                        "cnumpy.core.multiarray\nscalar\n" DTYPE("i4") "C\2\xfe\xff\x86R"
                                                                       "a"));
    const sheaf_pickle *root = doc->root;
    assert_true(sheaf__pickle_int(&n, sheaf__pickle_item(root, 0)));
    assert_int_equal(n, -2);
    assert_true(sheaf__pickle_float(&real, sheaf__pickle_item(root, 1)));
    assert_true(real == 1.5);
    assert_false(sheaf__pickle_int(&n, sheaf__pickle_item(root, 2))); /* two bytes are no int32 */
    sheaf__pickle_free(doc);
}

/* ---- writing ---- */

TEST(test_encode__reads_back_as_it_was_made)
{
    static const int64_t numbers[] = { 0,         255,       256, 65535,     65536,
                                       INT32_MAX, INT32_MIN, -1,  INT64_MAX, INT64_MIN };
    static const int64_t shape[] = { 3, 2 };
    sheaf_pickle_doc *doc = NULL;
    CHECK_OK(sheaf__pickle_new(&doc));
    sheaf_pickle *root = sheaf__pickle_make(doc, SHEAF_PICKLE_DICT),
                 *list = sheaf__pickle_make(doc, SHEAF_PICKLE_LIST);
    sheaf_pickle *set = sheaf__pickle_make(doc, SHEAF_PICKLE_SET),
                 *tuple = sheaf__pickle_make(doc, SHEAF_PICKLE_TUPLE);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        sheaf__pickle_append(doc, list, sheaf__pickle_make_int(doc, numbers[i]));
    sheaf__pickle_append(doc, set, sheaf__pickle_make_none(doc));
    sheaf__pickle_append(doc, tuple, sheaf__pickle_make_bool(doc, true));
    sheaf__pickle_set(doc, root, "list", list);
    sheaf__pickle_set(doc, root, "set", set);
    sheaf__pickle_set(doc, root, "tuple", tuple);
    sheaf__pickle_set(doc, root, "float", sheaf__pickle_make_float(doc, -0.5));
    sheaf__pickle_set(doc, root, "w", sheaf__pickle_make_tensor(doc, SHEAF_BF16, 2, shape));
    sheaf__pickle_set(doc, root, "v", sheaf__pickle_make_tensor(doc, SHEAF_F8_E4M3, 1, shape));
    sheaf__pickle_set(doc, root, "w2", sheaf__pickle_make_tensor(doc, SHEAF_BF16, 0, NULL));
    CHECK_OK(sheaf__pickle_made(doc, root));
    char *bytes = NULL;
    size_t size = 0;
    CHECK_OK(sheaf__pickle_encode(&bytes, &size, doc));
    char *text = spelled(bytes, size);
    assert_string_equal(
        text,
        "{'list':[0,255,256,65535,65536,2147483647,-2147483648,-1,9223372036854775807,-9223372036854775808],"
        "'set':<None>,'tuple':(True),'float':-0.5,'w':T0BF16+0|3*2|2*1,'v':T1F8_E4M3+0|3*1,'w2':T2BF16+0}");
    free(text);
    free(bytes);
    sheaf__pickle_free(doc);
}

TEST(test_encode__refuses_what_it_cannot_write)
{
    sheaf_pickle_doc *doc = NULL;
    char *bytes = NULL;
    size_t size = 0;
    CHECK_OK(sheaf__pickle_new(&doc));
    CHECK_OK(sheaf__pickle_made(doc, sheaf__pickle_make_string(doc, "\xff")));
    CHECK_FAILS(sheaf__pickle_encode(&bytes, &size, doc), SHEAF_E_ARG, "UTF-8");
    const int64_t huge[] = { INT64_MAX / 2, 8 };
    assert_null(sheaf__pickle_make_tensor(doc, SHEAF_F32, 2, huge));
    CHECK_FAILS(sheaf__pickle_made(doc, sheaf__pickle_make_none(doc)), SHEAF_E_ARG, "2^61 bytes");
    sheaf__pickle_free(doc);
    /* A tensor that was read shares storages and has strides: it is not one to be written. */
    doc = parse(P("]" REBUILD "(" F32_ID("0", "\x0c") "K\1(K\2K\3t(K\4K\1t" TAIL_V2 "a"));
    CHECK_FAILS(sheaf__pickle_encode(&bytes, &size, doc), SHEAF_E_ARG, "made to be written");
    sheaf__pickle_free(doc);
    doc = parse(P("ca\nB\n)R"));
    CHECK_FAILS(sheaf__pickle_encode(&bytes, &size, doc), SHEAF_E_ARG, "sheaf__pickle_make");
    sheaf__pickle_free(doc);
}

/* Objects that are tensors elsewhere and none here, in words. */
TEST(test_unread__dtypes_and_metadata_that_are_not_read)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *is;
    } rows[] = {
        { P(REBUILD "(" F32_ID("0", "\1") "K\0))\x89" ODICT ")R}X\4\0\0\0conj\x88stR"),
          "a conjugated tensor" },
        { P(REBUILD "(" F32_ID("0", "\1") "K\0))\x89" ODICT ")R}X\3\0\0\0neg\x88stR"),
          "a negated tensor" },
        { P("ctorch._utils\n_rebuild_tensor_v3\n(" F32_ID(
              "0", "\1") "K\0))\x89" ODICT ")Rctorch\nfloat4_e2m1fn_x2\ntR"),
          "a tensor of float4_e2m1fn_x2" },
        { P(F32_ID("0", "\1")), "a storage without a tensor" },
        { P(REBUILD "(" F32_ID("0", "\1") "K\0))" TAIL_V2), NULL },
        { P("](" REBUILD "(" F32_ID("0", "\1") "K\0))" TAIL_V2 "e"),
          "a tensor that has no name of its own" },
        { P("](K\1Ne"), NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char buffer[SHEAF_PICKLE_UNREAD_MOST];
        int64_t steps = 100;
        sheaf_pickle_doc *doc = parse(rows[i].bytes, rows[i].size);
        const char *is = sheaf__pickle_unread(doc->root, buffer, &steps);
        if ((is == NULL) != (rows[i].is == NULL) || (is != NULL && strcmp(is, rows[i].is) != 0))
            fail_msg("row %zu: %s", i, is == NULL ? "nothing" : is);
        steps = 0;
        assert_non_null(sheaf__pickle_unread(
            doc->root, buffer, &steps)); /* objects that cannot be read are not passed over */
        sheaf__pickle_free(doc);
    }
}
