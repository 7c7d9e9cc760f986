/* pickle_names.c - what a name in a pickle may be; see pickle.h.
 *
 * Deny by default, in this order: the closed table; what reaches into the machine, wherever it
 * stands in a dotted name; the rest of Python's library; then classes of other packages (the last
 * part of the name begins with a capital) are opaque, and their functions may be named
 * but not called. Nothing here is ever looked up, imported or run. */
#include <ctype.h>

#include "pickle_inner.h"
#include "base/base.h"

/* Names of a module, separated by blanks. A class here is kept, not read: _load_from_bytes is a
 * file within the pickle. */
static const struct {
    const char *module, *names;
    sheaf_pickle_role role;
} known[] = {
    { "collections", "OrderedDict Counter", SHEAF_ROLE_DICT },
    { "collections", "defaultdict", SHEAF_ROLE_DEFAULTDICT },
    { "collections", "deque", SHEAF_ROLE_CLASS },
    { "torch", "Size", SHEAF_ROLE_SIZE },
    { "torch._utils", "_rebuild_tensor _rebuild_tensor_v2", SHEAF_ROLE_TENSOR },
    { "torch._utils", "_rebuild_tensor_v3", SHEAF_ROLE_TENSOR_V3 },
    { "torch._utils", "_rebuild_parameter _rebuild_parameter_with_state", SHEAF_ROLE_PARAMETER },
    { "torch._tensor", "_rebuild_from_type_v2", SHEAF_ROLE_FROM_TYPE },
    { "torch", "device", SHEAF_ROLE_CLASS },
    { "torch.serialization", "_get_layout", SHEAF_ROLE_CLASS },
    { "torch.storage", "_load_from_bytes", SHEAF_ROLE_CLASS },
    { "torch._utils",
      "_rebuild_meta_tensor_no_storage _rebuild_sparse_tensor _rebuild_sparse_csr_tensor "
      "_rebuild_nested_tensor _rebuild_qtensor _rebuild_wrapper_subclass "
      "_rebuild_device_tensor_from_numpy _rebuild_device_tensor_from_cpu_tensor",
      SHEAF_ROLE_CLASS },
    { "torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING", SHEAF_ROLE_CLASS },
    { "_codecs", "encode", SHEAF_ROLE_ENCODE },
    { "builtins", "set frozenset", SHEAF_ROLE_SET },
    { "builtins", "list", SHEAF_ROLE_LIST },
    { "builtins", "tuple", SHEAF_ROLE_TUPLE },
    { "builtins", "dict", SHEAF_ROLE_DICT },
    { "builtins", "bytes bytearray", SHEAF_ROLE_BYTES },
    { "builtins", "getattr", SHEAF_ROLE_GETATTR },
    { "builtins",
      "object type int long float bool str unicode complex slice range xrange Ellipsis "
      "NotImplemented",
      SHEAF_ROLE_CLASS },
    { "copyreg", "_reconstructor __newobj__ __newobj_ex__", SHEAF_ROLE_MAKE },
    { "argparse", "Namespace", SHEAF_ROLE_CLASS },
    { "types", "SimpleNamespace", SHEAF_ROLE_CLASS },
    { "functools", "partial", SHEAF_ROLE_CLASS },
    { "pathlib", "Path PurePath PosixPath PurePosixPath WindowsPath PureWindowsPath",
      SHEAF_ROLE_CLASS },
    { "pathlib._local", "PosixPath PurePosixPath WindowsPath", SHEAF_ROLE_CLASS },
    { "datetime", "datetime date time timedelta timezone", SHEAF_ROLE_CLASS },
    { "decimal", "Decimal", SHEAF_ROLE_CLASS },
    { "fractions", "Fraction", SHEAF_ROLE_CLASS },
    { "uuid", "UUID", SHEAF_ROLE_CLASS },
    { "random", "Random", SHEAF_ROLE_CLASS },
    { "re", "_compile", SHEAF_ROLE_CLASS },
    { "logging", "getLogger", SHEAF_ROLE_CLASS },
    { "array", "array _array_reconstructor", SHEAF_ROLE_CLASS },
    { "_io", "BytesIO StringIO", SHEAF_ROLE_CLASS },
    { "numpy", "dtype ndarray", SHEAF_ROLE_CLASS },
    { "numpy.core.multiarray", "_reconstruct scalar", SHEAF_ROLE_CLASS },
    { "numpy.core.numeric", "_frombuffer", SHEAF_ROLE_CLASS },
    { "numpy.random._pickle", "__randomstate_ctor __generator_ctor __bit_generator_ctor",
      SHEAF_ROLE_CLASS },
};

/* Refused as any part of a dotted name: "torch.serialization.os" is the module os. */
static const char machine[] =
    "__builtin__ __builtins__ builtins commands ctypes importlib nt ntpath os pickle posix "
    "posixpath pty runpy shutil socket subprocess sys __globals__ __subclasses__ __import__ "
    "__code__ __reduce__";

/* The rest of Python's library, 2.7 to 3.14; names that begin with an underscore are refused by
 * rule. */
static const char library[] =
    "abc aifc annotationlib antigravity argparse array ast asynchat asyncio asyncore atexit "
    "audioop base64 bdb binascii binhex bisect bz2 cPickle cProfile calendar cgi cgitb chunk "
    "cmath cmd code codecs codeop collections colorsys compileall compression concurrent "
    "configparser contextlib contextvars copy copy_reg copyreg crypt csv curses dataclasses "
    "datetime dbm decimal difflib dis distutils doctest email encodings ensurepip enum errno "
    "faulthandler fcntl filecmp fileinput fnmatch formatter fractions ftplib functools gc "
    "genericpath getopt getpass gettext glob graphlib grp gzip hashlib heapq hmac html http "
    "httplib idlelib imaplib imghdr imp inspect io ipaddress itertools json keyword lib2to3 "
    "linecache locale logging lzma mailbox mailcap marshal math mimetypes mmap modulefinder "
    "msilib msvcrt multiprocessing netrc new nis nntplib nturl2path numbers opcode operator "
    "optparse ossaudiodev parser pathlib pdb pickletools pip pipes pkg_resources pkgutil "
    "platform plistlib popen2 poplib pprint profile pstats pwd py_compile pyclbr pydoc "
    "pydoc_data pyexpat queue quopri random re readline reprlib resource rlcompleter sched "
    "secrets select selectors setuptools shelve shlex signal site smtpd smtplib sndhdr "
    "socketserver spwd sqlite3 sre_compile sre_constants sre_parse ssl stat statistics string "
    "stringprep struct sunau symbol symtable sysconfig syslog tabnanny tarfile telnetlib "
    "tempfile termios test textwrap this thread threading time timeit tkinter token tokenize "
    "tomllib trace traceback tracemalloc tty turtle turtledemo types unicodedata unittest "
    "urllib urllib2 uu uuid venv warnings wave weakref webbrowser winreg winsound wsgiref "
    "xdrlib xml xmlrpc zipapp zipfile zipimport zlib zoneinfo";

/* Does a part between dots reach into the machine? */
static bool reaches_machine(const char *name)
{
    for (;; name++) {
        const size_t size = strcspn(name, ".");
        if (sheaf__is_listed(machine, name, size))
            return true;
        name += size;
        if (*name == '\0')
            return false;
    }
}

static bool is_class_like(const char *name)
{
    const char *last = strrchr(name, '.');
    last = last == NULL ? name : last + 1;
    last += strspn(last, "_");
    return isupper((unsigned char)*last);
}

/* One module under two names: Python 2 and 3, numpy 1 and 2. */
static const char *today(const char *module, char buffer[128])
{
    if (strcmp(module, "__builtin__") == 0)
        return "builtins";
    if (strcmp(module, "copy_reg") == 0)
        return "copyreg";
    if (strncmp(module, "numpy._core.", 12) == 0 && strlen(module) < 100) {
        strcpy(buffer, "numpy.core.");
        return strcat(buffer, module + 12);
    }
    return module;
}

bool sheaf__pickle_name(sheaf_pickle_role *role, const char *module, const char *name)
{
    char buffer[128];
    const char *known_module = today(module, buffer);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].module, known_module) == 0 &&
            sheaf__is_listed(known[i].names, name, strlen(name))) {
            *role = known[i].role;
            return true;
        }
    if (reaches_machine(module) || reaches_machine(name))
        return false;
    *role = is_class_like(name) ? SHEAF_ROLE_CLASS : SHEAF_ROLE_FUNCTION;
    const size_t root = strcspn(module, ".");
    if (strcmp(module, "__main__") == 0)
        return true;
    if (strcmp(module, "typing") == 0) /* annotations that configurations carry along */
        return *role == SHEAF_ROLE_CLASS;
    return root > 0 && *module != '_' && !sheaf__is_listed(library, module, root);
}

sheaf_status *sheaf__pickle_unsafe(const char *module, const char *name)
{
    sheaf_status *st =
        sheaf_fail(SHEAF_E_UNSAFE, "the pickle wants to call %.120s.%.120s", module, name);
    sheaf_expected(st, "data: tensors, numbers, text, their containers, and objects of classes");
    sheaf_found(st, "%.120s.%.120s, which does something when it is called", module, name);
    return sheaf_try_this(
        st, "nothing was run; do not load this file with Python, and ask where it comes from");
}
