// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "store.h"

/// How tasks, tubes and index entries are written as keys and values.
///
///   F                               the format: a number
///   M name                          ids, burials
///   T id                         -> fields, then body         written once, by put
///   S id                         -> fields                    if they have changed since
///   D tube due id                -> nothing                   delayed tasks, in the order of due
///   R tube priority due id       -> nothing                   ready tasks, in their order
///   B tube burial id             -> nothing                   buried tasks, oldest first
///   K tube key                   -> id
///   U tube                       -> name, counts, pause, due mark
///   N name                       -> text                      notes: what is kept besides tasks
///   L D|R|B tube                 -> a key of that index       no entry is before it
///
/// Numbers in keys are big-endian, so that their order is the order of the bytes. Numbers in values
/// are as short as they can be. A body is written once, however often its task changes.
namespace verge::server::records {

/// Format 2 has notes, and tasks with a part about pushing. Format 3 has a due mark in the record
/// of a tube, and low-water marks. It reads all that the formats before have written.
inline constexpr std::uint32_t format = 3;
inline constexpr std::uint32_t oldest_format = 1;

std::string format_key();
std::string mark_key(std::string_view name);
std::string task_key(task_id id);
std::string changes_key(task_id id);
std::string index_key(tube_number tube, const place& p, task_id id);
/// What all entries of an index of a tube begin with.
std::string index_prefix(tube_number tube, place_kind kind);
/// Behind all of them.
std::string end_of_index(std::string_view prefix);
inline std::string end_of_index(tube_number tube, place_kind kind) {
  return end_of_index(index_prefix(tube, kind));
}
std::string key_key(tube_number tube, std::string_view key);
std::string tube_key(tube_number tube);
std::string note_key(std::string_view name);
/// Of the index with this prefix.
std::string low_water_key(std::string_view prefix);

/// The id and the place in a key of an index. False if it is none.
bool parse_index_key(std::string_view key, tube_number& tube, place& p, task_id& id);

void append_fields(std::string& out, const task& t, const place& p);
/// Takes the fields off the front. Throws store_error if they are not right.
stored_task take_fields(std::string_view& in);

std::string tube_value(const tube_record& t);
tube_record parse_tube(tube_number number, std::string_view value);

std::string number_value(std::uint64_t n);
std::uint64_t parse_number(std::string_view value);

/// The big-endian numbers of keys.
std::uint64_t id_at(std::string_view key, std::size_t offset);
std::uint32_t tube_at(std::string_view key, std::size_t offset);

}  // namespace verge::server::records
