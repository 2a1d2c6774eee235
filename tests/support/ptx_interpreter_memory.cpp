#include "tests/support/ptx_interpreter_memory.h"

#include <algorithm>

namespace sparsertc::ptx {

void ThreadClocks::reset(uint32_t threads) {
  own_.assign(threads, 1);
  known_.assign(threads, std::make_shared<const std::vector<uint32_t>>(threads, 0));
}

void ThreadClocks::meet(const std::vector<uint32_t>& threads) {
  auto joined = std::make_shared<std::vector<uint32_t>>(*known_[threads.front()]);
  const std::vector<uint32_t>* last = known_[threads.front()].get();
  for (const uint32_t thread : threads) {
    const std::vector<uint32_t>* known = known_[thread].get();
    if (known != last) {
      for (size_t i = 0; i < known->size(); ++i)
        (*joined)[i] = std::max((*joined)[i], (*known)[i]);
      last = known;
    }
  }
  for (const uint32_t thread : threads)
    (*joined)[thread] = own_[thread];
  for (const uint32_t thread : threads) {
    known_[thread] = joined;
    ++own_[thread];
  }
}

void ThreadClocks::release(uint32_t thread, Knowledge& into) {
  const std::vector<uint32_t>& known = *known_[thread];
  into.resize(known.size());
  for (size_t i = 0; i < known.size(); ++i)
    into[i] = std::max(into[i], known[i]);
  into[thread] = own_[thread]++;
}

void ThreadClocks::acquire(uint32_t thread, const Knowledge& from) {
  auto joined = std::make_shared<std::vector<uint32_t>>(*known_[thread]);
  for (size_t i = 0; i < from.size(); ++i)
    (*joined)[i] = std::max((*joined)[i], from[i]);
  known_[thread] = std::move(joined);
}

void SharedMemory::reset(uint64_t bytes, const ThreadClocks* clocks) {
  clocks_ = clocks;
  data_.assign(bytes, 0xcd);
  cells_.assign(bytes, Cell());
  more_readers_.clear();
}

bool SharedMemory::fail(ErrorKind kind, uint64_t byte, const Access& other, bool other_wrote) {
  fault_ = {kind, byte, other.thread, other.line, other_wrote};
  return false;
}

bool SharedMemory::read(uint32_t thread, uint64_t offset, uint32_t bytes, bool strong,
                        uint32_t line) {
  const Access now = {clocks_->clock(thread), line, static_cast<uint16_t>(thread), strong};
  for (uint64_t byte = offset; byte < offset + bytes; ++byte) {
    Cell& cell = cells_[byte];
    if (cell.copies > 0)
      return fail(ErrorKind::stale_copy, byte, cell.writer, true);
    if (cell.writer.thread == kNobody)
      return fail(ErrorKind::uninitialised, byte, cell.writer, true);
    if (conflicts(cell.writer, thread, strong))
      return fail(ErrorKind::race, byte, cell.writer, true);
    // A reader that is ordered before this one is covered by it.
    if (cell.reader.thread == kNobody || !conflicts(cell.reader, thread, false)) {
      cell.reader = now;
      continue;
    }
    if (cell.more_readers == 0) {
      more_readers_.emplace_back();
      cell.more_readers = static_cast<uint32_t>(more_readers_.size());
    }
    std::vector<Access>& others = more_readers_[cell.more_readers - 1];
    const auto covered = std::find_if(others.begin(), others.end(), [&](const Access& other) {
      return !conflicts(other, thread, false);
    });
    if (covered != others.end())
      *covered = now;
    else
      others.push_back(now);
  }
  return true;
}

bool SharedMemory::write(uint32_t thread, uint64_t offset, uint32_t bytes, bool strong,
                         uint32_t line) {
  const Access now = {clocks_->clock(thread), line, static_cast<uint16_t>(thread), strong};
  for (uint64_t byte = offset; byte < offset + bytes; ++byte) {
    Cell& cell = cells_[byte];
    if (cell.copies > 0)
      return fail(ErrorKind::stale_copy, byte, cell.writer, true);
    if (conflicts(cell.writer, thread, strong))
      return fail(ErrorKind::race, byte, cell.writer, true);
    if (conflicts(cell.reader, thread, strong))
      return fail(ErrorKind::race, byte, cell.reader, false);
    if (cell.more_readers != 0) {
      for (const Access& other : more_readers_[cell.more_readers - 1])
        if (conflicts(other, thread, strong))
          return fail(ErrorKind::race, byte, other, false);
      more_readers_[cell.more_readers - 1].clear();
    }
    cell.writer = now;
    cell.reader = Access();
  }
  return true;
}

bool SharedMemory::begin_copy(uint32_t thread, uint64_t offset, uint32_t bytes, uint32_t line) {
  if (!write(thread, offset, bytes, false, line))
    return false;
  for (uint64_t byte = offset; byte < offset + bytes; ++byte)
    ++cells_[byte].copies;
  return true;
}

void SharedMemory::end_copy(uint32_t thread, uint64_t offset, uint32_t bytes, uint32_t line) {
  const Access now = {clocks_->clock(thread), line, static_cast<uint16_t>(thread), false};
  for (uint64_t byte = offset; byte < offset + bytes; ++byte) {
    --cells_[byte].copies;
    cells_[byte].writer = now;
  }
}

} // namespace sparsertc::ptx
