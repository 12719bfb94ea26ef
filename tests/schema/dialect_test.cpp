// SPDX-License-Identifier: Apache-2.0
//
// The dialects of the format. What no plain capture needs is refused under its own name before HDF5
// sees it; the structures that honest writers make of many attributes are read. That every dialect
// of h5py is read stands in tests/cli/test_dialects.py.
#include <array>
#include <cstring>

#include "tests/schema/support.hpp"

namespace goldenrule::schema {
namespace {

/// A property list, closed at the end.
class Properties {
 public:
  explicit Properties(hid_t kind) : id_(H5Pcreate(kind)) { REQUIRE(id_ >= 0); }
  Properties(const Properties&) = delete;
  Properties& operator=(const Properties&) = delete;
  ~Properties() { H5Pclose(id_); }
  [[nodiscard]] hid_t get() const { return id_; }

 private:
  hid_t id_;
};

class LatestFormat : public Properties {
 public:
  LatestFormat() : Properties(H5P_FILE_ACCESS) {
    REQUIRE(H5Pset_libver_bounds(get(), H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0);
  }
};

/// The frame of a capture; `fill` does the rest.
void make_file(const std::filesystem::path& path, hid_t creation, hid_t access,
               const std::function<void(hid_t)>& fill = {}) {
  const hid_t f = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access);
  REQUIRE(f >= 0);
  put_attribute(f, "/", "schema", std::string("goldenrule/1"));
  put_attribute(f, "/", "op", std::string("kda"));
  put_attribute(f, "/", "mode", std::string("decode"));
  H5Gclose(H5Gcreate2(f, "inputs", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  if (fill) fill(f);
  REQUIRE(H5Fclose(f) >= 0);
}

void put_text(hid_t file, const char* object, const std::string& name, std::size_t bytes) {
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, bytes);
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t a = H5Acreate_by_name(file, object, name.c_str(), type, space, H5P_DEFAULT,
                                    H5P_DEFAULT, H5P_DEFAULT);
  const std::string text(bytes, 'x');
  REQUIRE(H5Awrite(a, type, text.data()) >= 0);
  H5Aclose(a);
  H5Sclose(space);
  H5Tclose(type);
}

void put_texts(hid_t file, const char* object, int count, std::size_t bytes) {
  for (int i = 0; i < count; ++i) put_text(file, object, "note" + std::to_string(i), bytes);
}

/// write_edited, with the file open in the latest format.
void write_edited_latest(const std::filesystem::path& path,
                         const std::function<void(hid_t)>& edit) {
  write_edited(path, [](hid_t) {});
  const LatestFormat access;
  const hid_t f = H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get());
  REQUIRE(f >= 0);
  edit(f);
  REQUIRE(H5Fclose(f) >= 0);
}

TEST_CASE("superblocks of other dialects") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const LatestFormat latest;
  const auto refuse = [&](const std::function<void(hid_t)>& set, hid_t access,
                          const std::string& expected, const std::string& actual) {
    const Properties creation(H5P_FILE_CREATE);
    set(creation.get());
    make_file(path, creation.get(), access);
    check_refused(path, ErrorKind::kUnsafe, "", expected, actual);
  };
  const auto btree = [](hid_t p) { H5Pset_istore_k(p, 64); };
  const auto symbols = [](hid_t p) { H5Pset_sym_k(p, 32, 8); };
  const auto shared = [](hid_t p) {
    H5Pset_shared_mesg_nindexes(p, 1);
    H5Pset_shared_mesg_index(p, 0, H5O_SHMESG_ALL_FLAG, 8);
  };
  refuse(btree, H5P_DEFAULT, "version 0, 2 or 3", "version 1");
  refuse(symbols, H5P_DEFAULT, "symbol tables of half size 4", "8");
  refuse([](hid_t p) { H5Pset_sizes(p, 4, 8); }, H5P_DEFAULT, "offsets of bytes 8", "4");
  refuse([](hid_t p) { H5Pset_sizes(p, 8, 4); }, latest.get(), "lengths of bytes 8", "4");
  refuse(symbols, latest.get(), "only what the superblock", "B-tree sizes of its own");
  refuse(shared, latest.get(), "only what the superblock", "a table of shared messages");

  const Properties family(H5P_FILE_ACCESS);
  H5Pset_fapl_family(family.get(), 1U << 20, H5P_DEFAULT);
  make_file(dir / "family%d.h5", H5P_DEFAULT, family.get());
  check_refused(dir / "family0.h5", ErrorKind::kUnsafe, "", "driver information at undefined", "");

  make_file(path, H5P_DEFAULT, H5P_DEFAULT);
  write_bytes(path, std::string(512, '\0') + file_bytes(path));
  check_refused(path, ErrorKind::kUnsafe, "", "the base address 512", "0");
}

TEST_CASE("a metadata cache image") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const LatestFormat access;
  H5AC_cache_image_config_t image{};
  image.version = H5AC__CURR_CACHE_IMAGE_CONFIG_VERSION;
  image.generate_image = true;
  image.entry_ageout = H5AC__CACHE_IMAGE__ENTRY_AGEOUT__NONE;
  REQUIRE(H5Pset_mdc_image_config(access.get(), &image) >= 0);
  make_file(path, H5P_DEFAULT, access.get());
  check_refused(path, ErrorKind::kUnsafe, "", "only what the superblock", "a metadata cache image");
}

TEST_CASE("chunks of datasets that may grow") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const auto put = [](hid_t f, const std::array<hsize_t, 2>& limit) {
    const std::array<hsize_t, 2> extent{4, 6};
    const std::array<hsize_t, 2> chunk{2, 3};
    const Properties creation(H5P_DATASET_CREATE);
    H5Pset_chunk(creation.get(), 2, chunk.data());
    const hid_t space = H5Screate_simple(2, extent.data(), limit.data());
    const hid_t d =
        H5Dcreate2(f, "/inputs/q", H5T_IEEE_F32LE, space, H5P_DEFAULT, creation.get(), H5P_DEFAULT);
    const std::array<float, 24> data{};
    REQUIRE(H5Dwrite(d, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()) >= 0);
    H5Dclose(d);
    H5Sclose(space);
  };
  const LatestFormat latest;
  const auto refuse = [&](const std::array<hsize_t, 2>& limit, const std::string& actual) {
    make_file(path, H5P_DEFAULT, latest.get(), [&](hid_t f) { put(f, limit); });
    check_refused(path, ErrorKind::kUnsafe, "/inputs/q", "(written without maxshape)", actual);
  };
  refuse({H5S_UNLIMITED, 6}, "chunks in an extensible array");
  refuse({H5S_UNLIMITED, H5S_UNLIMITED}, "chunks in a version 2 B-tree");
}

TEST_CASE("many attributes of a dataset") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  write_edited_latest(path, [](hid_t f) { put_texts(f, "/inputs/b", 8, 10); });
  check_refused(path, ErrorKind::kUnsafe, "/inputs/b", "at most 8 attributes, in its header",
                "dense attributes");  // one more is its digest
}

TEST_CASE("many attributes of a group") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const LatestFormat latest;
  const auto make = [&](int count, std::size_t bytes) {
    make_file(path, H5P_DEFAULT, latest.get(), [&](hid_t f) { put_texts(f, "/", count, bytes); });
  };
  // One block of the heap, and several in rows of four: read, and what is missed is an input.
  for (const std::size_t bytes : {4, 300, 3000}) {
    make(26, bytes);
    check_refused(path, ErrorKind::kSchema, "/inputs/q", "", "");
  }
  make(27, 10);
  check_refused(path, ErrorKind::kUnsafe, "/", "a few attributes", "depth 1");
  make(9, 5000);
  check_refused(path, ErrorKind::kUnsafe, "/", "a few attributes", "huge objects");
}

// What HDF5 1.10 divides by, or follows, once the checksum is right; the check does not ask for it.
TEST_CASE("patched dense storage") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const LatestFormat latest;
  make_file(path, H5P_DEFAULT, latest.get(), [](hid_t f) { put_texts(f, "/", 10, 10); });
  const std::string whole = file_bytes(path);
  const auto patch = [&](const char* signature, std::size_t offset, char value) {
    std::string bytes = whole;
    const std::size_t at = bytes.find(signature);
    REQUIRE(at != std::string::npos);
    bytes[at + offset] = value;
    write_bytes(path, bytes);
  };
  const std::string expected = "dense storage as HDF5 makes it for a few attributes";
  patch("BTHD", 10, 0);
  check_refused(path, ErrorKind::kUnsafe, "/", expected, "records of bytes 0");
  patch("BTHD", 12, 3);
  check_refused(path, ErrorKind::kUnsafe, "/", expected, "depth 3");
  patch("BTHD", 24, 100);
  check_refused(path, ErrorKind::kUnsafe, "/", expected, "a total of");
  patch("FRHP", 5, 9);
  check_refused(path, ErrorKind::kUnsafe, "/", expected, "identifiers of length 9");
  patch("FRHP", 110, 0);
  check_refused(path, ErrorKind::kUnsafe, "/", expected, "a table of width 0");
  patch("BTLF", 6, 0x10);
  check_refused(path, ErrorKind::kUnsafe, "/", expected, "an object of more than 4096 bytes");
  patch("BTLF", 9, 1);  // 65536 further
  check_refused(path, ErrorKind::kFile, "/", "sound dense storage", "ends early");
  patch("FHDB", 13, 1);
  check_refused(path, ErrorKind::kFile, "/", "sound dense storage", "a damaged block");
}

TEST_CASE("messages that no capture needs") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  write_edited(path, [](hid_t f) {
    REQUIRE(H5Oset_comment_by_name(f, "/inputs/b", "hello", H5P_DEFAULT) >= 0);
  });
  check_refused(path, ErrorKind::kUnsafe, "/inputs/b", "only what a dataset", "a comment");
  write_edited(
      path, [](hid_t f) { REQUIRE(H5Oset_comment_by_name(f, "/inputs", "x", H5P_DEFAULT) >= 0); });
  check_refused(path, ErrorKind::kUnsafe, "/inputs", "only what a group", "a comment");
}

TEST_CASE("attributes of types that are never read") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const hid_t pair = H5Tcreate(H5T_COMPOUND, 8);
  H5Tinsert(pair, "re", 0, H5T_IEEE_F32LE);
  H5Tinsert(pair, "im", 4, H5T_IEEE_F32LE);
  write_edited(path, [&](hid_t f) {
    const hid_t space = H5Screate(H5S_SCALAR);
    H5Aclose(H5Acreate2(f, "pair", pair, space, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(space);
  });
  H5Tclose(pair);
  check_refused(path, ErrorKind::kType, "/", "a text or a number", "compound");
}

// HDF5 1.10 reads references of 16 bytes, whatever their type says, beyond the end of the message.
TEST_CASE("a patched reference of a variable-length text") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  make_file(path, H5P_DEFAULT, H5P_DEFAULT);
  std::string bytes = file_bytes(path);
  const std::string type("\x19\1\0\0\x10\0\0\0", 8);
  const std::size_t at = bytes.find(type);
  REQUIRE(at != std::string::npos);
  bytes[at + 4] = 8;
  write_bytes(path, bytes);
  check_refused(path, ErrorKind::kFile, "/", "a sound object header", "a reference of 8 bytes");
}

TEST_CASE("patched links") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const LatestFormat latest;
  make_file(path, H5P_DEFAULT, latest.get());
  const std::string whole = file_bytes(path);
  const std::size_t name = whole.find(std::string("\1\0\6inputs", 9));  // version, flags, length
  REQUIRE(name != std::string::npos);
  const auto patch = [&](std::size_t offset, char value) {
    std::string bytes = whole;
    bytes[name + offset] = value;
    write_bytes(path, bytes);
  };
  patch(0, 5);
  check_refused(path, ErrorKind::kFile, "/", "a sound object header", "a link of version 5");
  patch(1, 0x40);
  check_refused(path, ErrorKind::kFile, "/", "a sound object header", "unknown flags");
  patch(2, 0);
  check_refused(path, ErrorKind::kFile, "/", "a sound object header", "a link without a name");
  patch(2, 100);
  check_refused(path, ErrorKind::kFile, "/", "a sound object header", "ends early");
}

}  // namespace
}  // namespace goldenrule::schema
