// SPDX-License-Identifier: Apache-2.0

// What is read and written as text: times, lengths of time, and small codings.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "text/coding.h"
#include "text/time_text.h"

namespace {

using namespace verge::server;

// ---- Times -------------------------------------------------------------------------------------

TEST(time_text, reads_what_rfc_3339_allows) {
  EXPECT_EQ(parse_rfc3339("1970-01-01T00:00:00Z"), 0);
  EXPECT_EQ(parse_rfc3339("1970-01-01t01:00:00.5+01:00"), 500'000'000);
  EXPECT_EQ(parse_rfc3339("2000-02-29T12:00:00-00:30"), 951'827'400'000'000'000);
  EXPECT_EQ(parse_rfc3339("2016-12-31T23:59:60Z"), parse_rfc3339("2017-01-01T00:00:00Z"));
  EXPECT_EQ(parse_rfc3339("1970-01-01T00:00:00.0000000001Z"), 1) << "never early";
  EXPECT_EQ(parse_rfc3339("1970-01-01T00:00:00.1234567890Z"), 123'456'789);
  EXPECT_EQ(parse_rfc3339("1970-01-02T23:59:00+23:59"), 86'400 * second);
  EXPECT_EQ(parse_rfc3339("1969-12-31T23:59:59-00:01"), 59 * second) << "in UTC it is 1970";
  EXPECT_EQ(parse_rfc3339("2262-04-11T23:47:15.999999999Z"), 9'223'372'035'999'999'999);
  for (const char* const bad : {"",
                                "1970-01-01",
                                "1970-01-01T00:00:00",
                                "1970-01-01 00:00:00Z",
                                "1970-13-01T00:00:00Z",
                                "1970-02-30T00:00:00Z",
                                "1970-01-01T24:00:00Z",
                                "1970-01-01T00:60:00Z",
                                "1970-01-01T00:00:61Z",
                                "1970-01-01T00:00:00.Z",
                                "1970-01-01T00:00:00+1:00",
                                "1970-01-01T00:00:00Z ",
                                "1969-12-31T23:59:59Z",
                                "2262-12-31T00:00:00Z",
                                "70-01-01T00:00:00Z",
                                "1970-01-01T00:00:00+24:00",
                                "2262-04-11T23:47:16Z",
                                "1970-01-01T00:00:00+01:60",
                                "1970-01-01T00:00:00+01:0",
                                "1970-01-01T00:00:00+01:000",
                                "1970-01-01T00:00:00+01",
                                "1970-01-01T00:00:00+0100",
                                "1970-01-01T00:00:00/01:00",
                                "1970-01-01T00:00:0aZ",
                                "1970-01-01T00:00:0",
                                "1970/01-01T00:00:00Z",
                                "1970-01/01T00:00:00Z",
                                "1970-01-01T00.00:00Z",
                                "1970-01-01T00:00.00Z",
                                "1970-00-01T00:00:00Z",
                                "1970-01-00T00:00:00Z",
                                "1970-01-01T00:00:00,5Z"}) {
    EXPECT_EQ(parse_rfc3339(bad), std::nullopt) << bad;
  }
}

TEST(time_text, writes_what_it_reads) {
  for (const wall_time t :
       {wall_time{0}, wall_time{1}, wall_time{1'000}, wall_time{1'000'000},
        wall_time{1'700'000'000'123'456'789}, wall_time{4'107'542'399'000'000'000}}) {
    EXPECT_EQ(parse_rfc3339(format_rfc3339(t)), t) << format_rfc3339(t);
  }
  EXPECT_EQ(format_rfc3339(0), "1970-01-01T00:00:00Z") << "as many digits as it needs";
  EXPECT_EQ(format_rfc3339(20 * millisecond), "1970-01-01T00:00:00.020Z");
  EXPECT_EQ(format_rfc3339(20'000), "1970-01-01T00:00:00.000020Z");
  EXPECT_EQ(format_rfc3339(20), "1970-01-01T00:00:00.000000020Z");
  EXPECT_EQ(format_rfc3339(((23 * 60 + 5) * 60 + 9) * second), "1970-01-01T23:05:09Z");
  EXPECT_EQ(format_rfc3339(-second), "1969-12-31T23:59:59Z");
  EXPECT_EQ(format_rfc3339(-1), "1969-12-31T23:59:59.999999999Z");
}

TEST(time_text, reads_lengths_of_time) {
  EXPECT_EQ(parse_duration("90", second), 90 * second);
  EXPECT_EQ(parse_duration("1500ms", second), second * 3 / 2);
  EXPECT_EQ(parse_duration("30m", second), 1800 * second);
  EXPECT_EQ(parse_duration("2h", second), 7200 * second);
  EXPECT_EQ(parse_duration("3d", second), 3 * 86'400 * second);
  EXPECT_EQ(parse_duration("0", second), 0);
  EXPECT_EQ(parse_duration("7", second / 1000), 7 * millisecond) << "in the unit of the caller";
  EXPECT_EQ(parse_duration("4294967296s", second), longest);
  for (const char* const bad : {"", "s", "-1s", "1w", "1 s", "4294967297s", "99999999999999999999s",
                                "4294967296001ms", "49711d"}) {
    EXPECT_EQ(parse_duration(bad, second), std::nullopt) << bad;
  }
}

// ---- Codings -----------------------------------------------------------------------------------

TEST(utf8, has_one_form_for_each_character) {
  for (const std::string_view good :
       {"", "abc\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xec\xbf\xbf", "\xed\x9f\xbf",
        "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf3\xbf\xbf\xbf", "\xf4\x8f\xbf\xbf",
        "a\xc3\xa4z", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
    EXPECT_TRUE(is_utf8(std::string(good) + "z")) << good;
  }
  for (const std::string_view bad : {
           "\x80",
           "\xbf",
           "\xc0\x80",
           "\xc1\xbf",  // a byte that begins nothing, overlong
           "\xe0\x9f\xbf",
           "\xf0\x8f\xbf\xbf",  // overlong
           "\xed\xa0\x80",
           "\xed\xbf\xbf",  // surrogates
           "\xf4\x90\x80\x80",
           "\xf5\x80\x80\x80",
           "\xff",  // beyond U+10FFFF
           "\xc2\x7f",
           "\xc2\xc0",
           "\xe1\x80\x7f",
           "\xe1\xc0\x80",
           "\xf1\x80\x80\xc0",
           "\xf1\x80\x7f\x80",
       }) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
    EXPECT_FALSE(is_utf8("a" + std::string(bad) + "z")) << bad;
  }
  // Cut short, at the end of the text.
  for (const std::string_view whole : {"\xc2\x80", "\xe0\xa0\x80", "\xf0\x90\x80\x80"}) {
    for (std::size_t n = 1; n < whole.size(); ++n) {
      EXPECT_FALSE(is_utf8(whole.substr(0, n))) << whole << ' ' << n;
      EXPECT_FALSE(is_utf8("a" + std::string(whole.substr(0, n)))) << whole << ' ' << n;
    }
  }
}

TEST(json_text, is_read_as_what_it_was) {
  std::string all;
  for (char c = 0; c < 0x7f; ++c) all += c;
  all += "\x7f\xc3\xa4\xf0\x9f\x98\x80";
  std::string text = "[";
  append_json_text(text, all);
  text += ',';
  append_json_text(text, "");
  text += ']';
  EXPECT_EQ(nlohmann::json::parse(text), nlohmann::json({all, ""}));
  std::string small;
  append_json_text(small, "a\"b\\c\n\r\t\x01\x1f");
  EXPECT_EQ(small, R"("a\"b\\c\n\r\t\u0001\u001f")");
}

/// The examples of RFC 4648.
TEST(base64_text, is_that_of_the_standard) {
  const std::pair<std::string_view, std::string_view> examples[] = {
      {"", ""},
      {"f", "Zg=="},
      {"fo", "Zm8="},
      {"foo", "Zm9v"},
      {"foob", "Zm9vYg=="},
      {"fooba", "Zm9vYmE="},
      {"foobar", "Zm9vYmFy"},
      {{"\0\x10\x83\xfb\xff\xbe", 6}, "ABCD+/++"},
  };
  for (const auto& [bytes, text] : examples) {
    EXPECT_EQ(base64(bytes), text);
    EXPECT_EQ(parse_base64(text), bytes);
  }
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  for (std::size_t n = 0; n <= all.size(); ++n) {
    EXPECT_EQ(parse_base64(base64(all.substr(n))), all.substr(n));
  }
  for (const char* const bad : {"Z", "Zg", "Zg=", "Zm8", "====", "Z===", "=Zm8",
                                "Zg==Zg==", "Zh==", "Zm9=", "Zm9 ", "Zm-_", "Zm9v\n"}) {
    EXPECT_EQ(parse_base64(bad), std::nullopt) << bad;
  }
}

TEST(percent_decoding, takes_two_digits_of_either_case) {
  EXPECT_EQ(percent_decoded("a%2Fb%2fc"), "a/b/c");
  EXPECT_EQ(percent_decoded("%41%5a%7A%30%39%00"), std::string("AZz09\0", 6));
  EXPECT_EQ(percent_decoded("%ff"), "\xff");
  EXPECT_EQ(percent_decoded("a+b"), "a+b");
  EXPECT_EQ(percent_decoded("a+b%2B", true), "a b+");
  EXPECT_EQ(percent_decoded(""), "");
  for (const char* const bad : {"%", "%2", "a%2", "%g0", "%0g", "%G0", "%0G", "%/0", "%0/", "%:0",
                                "%0:", "%@0", "%`0", "%%20", "% 20"}) {
    EXPECT_EQ(percent_decoded(bad), std::nullopt) << bad;
  }
}

TEST(hexadecimal, has_at_least_one_digit_and_at_most_64_bits) {
  EXPECT_EQ(parse_hex("0"), 0U);
  EXPECT_EQ(parse_hex("1f"), 0x1fU);
  EXPECT_EQ(parse_hex("FfFfFfFfFfFfFfFf"), std::numeric_limits<std::uint64_t>::max());
  for (const char* const bad :
       {"", "g", "1g", "0x1", "-1", "+1", " 1", "1 ", "10000000000000000"}) {
    EXPECT_EQ(parse_hex(bad), std::nullopt) << bad;
  }
}

}  // namespace
