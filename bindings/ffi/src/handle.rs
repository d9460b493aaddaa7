//! Handles, which the application holds instead of pointers.
//!
//! A handle is a number with the kind of the object, its place in a table and the generation of that place. A deleted
//! handle, or a handle of another kind, is not found in the table; only after the generations of a place have all been
//! used (2^20, or 2^13 on 32 bits), a deleted handle may be found again. An object that one thread uses while another
//! deletes it is valid until the use ends.

use std::sync::{Arc, Mutex, PoisonError};

/// The parts of a handle, from its low bits: zeros, which make it look aligned; the place; the generation; the kind. On
/// 64 bits the sum is 47: runtimes of other languages use the higher bits for tags.
#[derive(Debug, Clone, Copy)]
struct Bits {
    zeros: u32,
    place: u32,
    generation: u32,
}

/// The number of kinds is below this.
const KINDS: usize = 16;

const BITS: Bits = match usize::BITS {
    64 => Bits { zeros: 3, place: 20, generation: 20 },
    _ => Bits { zeros: 2, place: 13, generation: 13 },
};

/// The objects of one kind.
pub struct Table<T> {
    kind: usize,
    slots: Mutex<Slots<T>>,
}

struct Slots<T> {
    all: Vec<Slot<T>>,
    /// Places without an object.
    free: Vec<usize>,
}

struct Slot<T> {
    generation: usize,
    object: Option<Arc<T>>,
}

impl<T> Table<T> {
    /// Returns an empty table of objects of this kind. Kinds are numbers from 1 to 15, different for each table of a
    /// library.
    pub const fn new(kind: usize) -> Self {
        assert!(kind > 0 && kind < KINDS);
        Table { kind, slots: Mutex::new(Slots { all: Vec::new(), free: Vec::new() }) }
    }

    /// Stores an object. Returns its handle; null if the table is full.
    pub fn insert<H>(&self, object: T) -> *mut H {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match slots.free.pop() {
            Some(place) => place,
            None if slots.all.len() < 1 << BITS.place => {
                slots.all.push(Slot { generation: 0, object: None });
                slots.all.len() - 1
            }
            None => return std::ptr::null_mut(),
        };
        let Some(slot) = slots.all.get_mut(place) else { return std::ptr::null_mut() };
        slot.generation = (slot.generation + 1) % (1 << BITS.generation);
        slot.object = Some(Arc::new(object));
        let kind = self.kind;
        let number = (((kind << BITS.generation) | slot.generation) << BITS.place) | place;
        std::ptr::without_provenance_mut(number << BITS.zeros)
    }

    /// Returns the object of a handle; `None` if it was deleted, or is of another kind.
    pub fn get<H>(&self, handle: *const H) -> Option<Arc<T>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        self.slot(&mut slots, handle.addr()).and_then(|(slot, _)| slot.object.clone())
    }

    /// Deletes a handle. Returns its object; `None` if it was deleted before, or is of another kind.
    pub fn remove<H>(&self, handle: *const H) -> Option<Arc<T>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let (object, place) = self
            .slot(&mut slots, handle.addr())
            .and_then(|(slot, place)| Some((slot.object.take()?, place)))?;
        slots.free.push(place);
        Some(object)
    }

    fn slot<'s>(&self, slots: &'s mut Slots<T>, handle: usize) -> Option<(&'s mut Slot<T>, usize)> {
        let number = handle >> BITS.zeros;
        let place = number & ((1 << BITS.place) - 1);
        let generation = (number >> BITS.place) & ((1 << BITS.generation) - 1);
        let kind = number >> (BITS.place + BITS.generation);
        let whole = number << BITS.zeros == handle && kind == self.kind;
        let slot = slots.all.get_mut(place).filter(|slot| whole && slot.generation == generation)?;
        Some((slot, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_and_foreign_handles_are_not_found() {
        let numbers = Table::new(1);
        let others = Table::new(2);
        let a: *mut u8 = numbers.insert(1);
        let b: *mut u8 = numbers.insert(2);
        let c: *mut u8 = others.insert(3);
        assert_eq!((numbers.get(a).as_deref(), numbers.get(b).as_deref()), (Some(&1), Some(&2)));
        assert!(numbers.get(c).is_none() && others.get(a).is_none());
        assert!(numbers.get(std::ptr::null::<u8>()).is_none() && numbers.get(&raw const a).is_none());
        assert!(numbers.get(a.wrapping_add(1)).is_none());
        assert_eq!(numbers.remove(a).as_deref(), Some(&1));
        assert!(numbers.get(a).is_none() && numbers.remove(a).is_none());
        let d: *mut u8 = numbers.insert(4);
        assert!(d != a && numbers.get(a).is_none(), "the place is the same, the generation is not");
        assert_eq!(numbers.get(d).as_deref(), Some(&4));
    }

    #[test]
    fn handles_leave_the_high_bits_free() {
        let numbers: Table<i32> = Table::new(KINDS - 1);
        let handle: *mut u8 = numbers.insert(1);
        if usize::BITS == 64 {
            assert!(handle.addr() < 1 << 47);
        }
    }

    #[test]
    fn an_object_in_use_outlives_its_handle() {
        let numbers = Table::new(1);
        let handle: *mut u8 = numbers.insert(5);
        let used = numbers.get(handle);
        drop(numbers.remove(handle));
        assert_eq!(used.as_deref(), Some(&5));
    }
}
