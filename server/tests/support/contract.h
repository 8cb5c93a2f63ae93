// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "http_wire.h"

/// The contract, openapi.json, as a judge: whether a response is one that it describes.
namespace verge::server::test {

class contract {
 public:
  using json = nlohmann::json;

  explicit contract(const std::string& file) {
    std::ifstream in(file);
    document_ = json::parse(in);
  }

  const json& document() const { return document_; }

  /// "" or what is wrong. `path` is the contract's: "/v1/tubes/{tube}".
  std::string fault(const std::string& method, const std::string& path, const http_answer& a) {
    const json* const op = operation(method, path);
    if (op == nullptr) return method + " " + path + " is not in the contract";
    const json& responses = op->at("responses");
    const std::string status = std::to_string(a.status);
    if (!responses.contains(status)) return "status " + status + " is not in the contract";
    seen_.insert(method + " " + path + " " + status);
    const json& content = resolve(responses.at(status)).at("content");
    const std::string type = a.header("content-type").substr(0, a.header("content-type").find(';'));
    if (!content.contains(type)) return "type '" + type + "' is not in the contract";
    if (type.find("json") == std::string::npos) return "";
    return mismatch(content.at(type).at("schema"), a.json(), "");
  }

  /// What the contract has and no response so far has shown.
  std::vector<std::string> unseen() const {
    std::vector<std::string> left;
    for (const auto& [path, methods] : document_.at("paths").items()) {
      for (const auto& [method, op] : methods.items()) {
        for (const auto& [status, response] : op.at("responses").items()) {
          const std::string name = upper(method) + " " + path + " " + status;
          if (seen_.count(name) == 0) left.push_back(name);
        }
      }
    }
    return left;
  }

  std::vector<std::pair<std::string, std::string>> operations() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& [path, methods] : document_.at("paths").items()) {
      for (const auto& [method, op] : methods.items()) all.emplace_back(upper(method), path);
    }
    return all;
  }

  /// A validator for the part of JSON Schema that the contract uses.
  std::string mismatch(const json& given, const json& value, const std::string& at) const {
    const json& schema = resolve(given);
    if (schema.contains("oneOf")) {
      int fits = 0;
      for (const json& one : schema["oneOf"]) fits += mismatch(one, value, at).empty() ? 1 : 0;
      return fits == 1 ? "" : at + ": fits " + std::to_string(fits) + " of oneOf";
    }
    if (schema.contains("enum")) {
      bool found = false;
      for (const json& one : schema["enum"]) found |= one == value;
      if (!found) return at + ": " + value.dump() + " is not in the enum";
    }
    const std::string type = schema.value("type", "");
    if (type == "object") return object_mismatch(schema, value, at);
    if (type == "array") {
      if (!value.is_array()) return at + ": is no array";
      for (std::size_t i = 0; schema.contains("items") && i < value.size(); ++i) {
        const std::string wrong = mismatch(schema["items"], value[i], at + "/" + std::to_string(i));
        if (!wrong.empty()) return wrong;
      }
    }
    if (type == "string" && !value.is_string()) return at + ": is no string";
    if (type == "boolean" && !value.is_boolean()) return at + ": is no boolean";
    if (type == "integer") {
      if (!value.is_number_integer()) return at + ": is no integer";
      if (schema.contains("minimum") && value < schema["minimum"]) return at + ": is too small";
    }
    return "";
  }

 private:
  static std::string upper(std::string text) {
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return text;
  }

  const json* operation(std::string method, const std::string& path) const {
    for (char& c : method) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const json& paths = document_.at("paths");
    if (!paths.contains(path) || !paths.at(path).contains(method)) return nullptr;
    return &paths.at(path).at(method);
  }

  const json& resolve(const json& j) const {
    if (!j.contains("$ref")) return j;
    return resolve(document_.at(json::json_pointer(j["$ref"].get<std::string>().substr(1))));
  }

  std::string object_mismatch(const json& schema, const json& value, const std::string& at) const {
    if (!value.is_object()) return at + ": is no object";
    for (const json& name : schema.value("required", json::array())) {
      if (!value.contains(name.get<std::string>())) return at + ": has no " + name.dump();
    }
    const json properties = schema.value("properties", json::object());
    for (const auto& [name, one] : value.items()) {
      if (!properties.contains(name)) {
        if (schema.value("additionalProperties", true)) continue;
        return at + "/" + name + ": is not in the contract";
      }
      const std::string wrong = mismatch(properties[name], one, at + "/" + name);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

  json document_;
  std::set<std::string> seen_;
};

}  // namespace verge::server::test
