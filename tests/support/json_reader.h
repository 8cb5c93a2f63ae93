// SPDX-License-Identifier: Apache-2.0
// A small strict reader of JSON, for tests that must not depend on a library.
#pragma once

#include <cctype>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace verge::test {

struct json {
  enum class kind { null, boolean, number, text, array, object };
  kind is{kind::null};
  bool boolean{false};
  double number{0};
  std::string text;
  std::vector<json> array;
  std::map<std::string, json> object;

  bool has(const std::string& name) const { return object.count(name) != 0; }
  const json& operator[](const std::string& name) const { return object.at(name); }
};

class json_reader {
 public:
  explicit json_reader(std::string_view text) : text_(text) {}

  json read_all() {
    json j = value();
    space();
    if (at_ != text_.size()) fail("something behind the end");
    return j;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error("JSON, at byte " + std::to_string(at_) + ": " + what);
  }
  void space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string::npos)
      ++at_;
  }
  char look() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void expect(char c) {
    if (look() != c) fail(std::string("no ") + c);
    ++at_;
  }
  bool take(char c) {
    space();
    if (look() != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  json value() {
    space();
    json j;
    const char c = look();
    if (c == '{') {
      j.is = json::kind::object;
      ++at_;
      if (take('}')) return j;
      do {
        space();
        std::string name = string();
        space();
        expect(':');
        if (!j.object.emplace(std::move(name), value()).second) fail("a name twice");
      } while (take(','));
      space();
      expect('}');
    } else if (c == '[') {
      j.is = json::kind::array;
      ++at_;
      if (take(']')) return j;
      do j.array.push_back(value());
      while (take(','));
      space();
      expect(']');
    } else if (c == '"') {
      j.is = json::kind::text;
      j.text = string();
    } else if (take_word("true")) {
      j.is = json::kind::boolean;
      j.boolean = true;
    } else if (take_word("false")) {
      j.is = json::kind::boolean;
    } else if (take_word("null")) {
      return j;
    } else {
      j.is = json::kind::number;
      std::size_t used = 0;
      if (c != '-' && std::isdigit(static_cast<unsigned char>(c)) == 0) fail("no value");
      j.number = std::stod(std::string(text_.substr(at_, 40)), &used);
      at_ += used;
    }
    return j;
  }

  std::string string() {
    expect('"');
    std::string s;
    for (;;) {
      if (at_ >= text_.size()) fail("no end of a string");
      const char c = text_[at_++];
      if (c == '"') return s;
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character");
      if (c != '\\') {
        s += c;
        continue;
      }
      const char e = look();
      ++at_;
      if (e == '"' || e == '\\' || e == '/') {
        s += e;
      } else if (e == 'n') {
        s += '\n';
      } else if (e == 't') {
        s += '\t';
      } else if (e == 'u') {
        s += static_cast<char>(std::stoi(std::string(text_.substr(at_, 4)), nullptr, 16));
        at_ += 4;
      } else {
        fail("an unknown escape");
      }
    }
  }

  std::string_view text_;
  std::size_t at_{0};
};

inline json read_json(std::string_view text) { return json_reader(text).read_all(); }

}  // namespace verge::test
