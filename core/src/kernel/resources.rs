//! Resources: variables that nodes share by name, and tables that they share by number, across subgraphs.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet, btree_map, hash_map};
use std::fmt::Debug;
use std::sync::Arc;

use super::{AlignedBuffer, Budget, Charge};
use crate::error::{Error, Result};
use crate::types::Shape;
use crate::types::TensorType;

/// The value of a resource variable in the memory of a device.
pub trait DeviceValue: Any + Send + Sync + Debug {
    /// Copies the value to the CPU, in the layout of a tensor of the variable's type. `bytes` has the size of that
    /// tensor. Blocks until the device has computed the value.
    ///
    /// # Errors
    /// If the device fails, or the caller must not block.
    fn read(&self, bytes: &mut [u8]) -> Result<()>;
}

/// The value of a resource variable.
#[derive(Debug)]
pub struct Variable {
    /// Element type.
    pub ty: TensorType,
    /// Shape.
    pub shape: Shape,
    /// The value on the CPU, stale if only `device` holds the current one.
    data: AlignedBuffer,
    device: Option<Arc<dyn DeviceValue>>,
    stale: bool,
}

impl Variable {
    /// Returns the value's bytes on the CPU; the bytes of an earlier value if only a device holds the current one.
    /// [`Resources::variable`] copies it first.
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// Returns the current value in the memory of a device, if a device holds it.
    pub fn on_device(&self) -> Option<&Arc<dyn DeviceValue>> {
        self.device.as_ref()
    }

    /// Returns the CPU's memory for a value that a device holds. The caller fills it with the current value.
    pub fn cpu_copy_mut(&mut self) -> &mut [u8] {
        self.stale = false;
        self.data.bytes_mut()
    }

    /// Copies the value to the CPU, if only a device holds it.
    fn fetch(&mut self) -> Result<()> {
        if let (Some(device), true) = (&self.device, self.stale) {
            device.read(self.data.bytes_mut())?;
        }
        self.stale = false;
        Ok(())
    }
}

/// A table that is filled once.
#[derive(Debug)]
pub struct Table {
    /// The entries.
    pub entries: Entries,
    /// Whether it was filled.
    pub filled: bool,
    charge: Charge,
}

impl Table {
    /// Reserves memory for `count` entries with strings of `bytes` bytes in total.
    ///
    /// # Errors
    /// As [`Budget::charge`]; [`Error::OutOfMemory`] if the allocation fails.
    pub fn reserve(&mut self, count: usize, bytes: usize) -> Result<()> {
        // A string has an allocation of its own, and a table has free places.
        const BYTES_PER_ENTRY: usize = 2 * size_of::<(i64, Box<[u8]>)>() + 32;
        let bytes = count.saturating_mul(BYTES_PER_ENTRY).saturating_add(bytes);
        self.charge.resize(bytes)?;
        let reserved = match &mut self.entries {
            Entries::StringsByInteger(map) => map.try_reserve(count),
            Entries::IntegersByString(map) => map.try_reserve(count),
        };
        reserved.map_err(|_| Error::OutOfMemory(format!("{bytes} bytes for a table")))
    }
}

/// The entries of a table.
#[derive(Debug)]
#[non_exhaustive]
pub enum Entries {
    /// From integers to strings.
    StringsByInteger(HashMap<i64, Box<[u8]>>),
    /// From strings to integers.
    IntegersByString(HashMap<Box<[u8]>, i64>),
}

/// The types of keys and values of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableKind {
    /// From integers to strings.
    StringsByInteger,
    /// From strings to integers.
    IntegersByString,
}

impl Entries {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match self {
            Entries::StringsByInteger(map) => map.len(),
            Entries::IntegersByString(map) => map.len(),
        }
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Saved values of variables.
#[derive(Debug)]
pub struct SavedVariables {
    variables: BTreeMap<i32, Variable>,
    initialized: HashSet<usize>,
}

/// The resources of one interpreter.
#[derive(Debug, Default)]
pub struct Resources {
    /// The budget that variables are charged to.
    budget: Option<Arc<Budget>>,
    tables: HashMap<i32, Table>,
    handles: HashMap<(String, String), i32>,
    /// By handle. Streaming models have few and read them in every invocation: comparing handles takes less than
    /// hashing.
    variables: BTreeMap<i32, Variable>,
    initialized: HashSet<usize>,
}

impl Resources {
    /// Resources whose memory is charged to `budget`.
    pub fn with_budget(budget: Arc<Budget>) -> Self {
        Resources { budget: Some(budget), ..Self::default() }
    }

    /// Returns the handle of the variable that `container` and `name` identify; the same pair always has the same
    /// handle.
    pub fn handle(&mut self, container: &str, name: &str) -> i32 {
        let next = i32::try_from(self.handles.len()).unwrap_or(i32::MAX);
        *self.handles.entry((container.to_owned(), name.to_owned())).or_insert(next)
    }

    /// Returns the value of a variable, on the CPU; `None` before it was assigned. Blocks if only a device holds the
    /// value.
    ///
    /// # Errors
    /// As [`DeviceValue::read`].
    pub fn variable(&mut self, handle: i32) -> Result<Option<&Variable>> {
        let Some(variable) = self.variables.get_mut(&handle) else { return Ok(None) };
        variable.fetch()?;
        Ok(Some(variable))
    }

    /// Returns a variable without copying its value to the CPU; `None` before it was assigned.
    pub fn variable_ref(&self, handle: i32) -> Option<&Variable> {
        self.variables.get(&handle)
    }

    /// Assigns a value to a variable. Memory is allocated only if the value is larger than every earlier one.
    ///
    /// # Errors
    /// As [`Resources::assign_on_device`].
    pub fn assign(&mut self, handle: i32, ty: TensorType, shape: &Shape, bytes: &[u8]) -> Result<()> {
        let variable = self.sized(handle, ty, shape, bytes.len())?;
        variable.data.bytes_mut().copy_from_slice(bytes);
        (variable.device, variable.stale) = (None, false);
        Ok(())
    }

    /// Assigns a value that a device holds to a variable: a tensor of this type and shape, of `bytes` bytes on the CPU.
    /// Its CPU memory is allocated now, so that reading allocates nothing; [`Variable::cpu_copy_mut`] fills it.
    ///
    /// # Errors
    /// As [`Budget::charge`]; [`Error::OutOfMemory`] if the allocation fails.
    pub fn assign_on_device(
        &mut self,
        handle: i32,
        ty: TensorType,
        shape: &Shape,
        bytes: usize,
        value: Arc<dyn DeviceValue>,
    ) -> Result<&mut Variable> {
        let variable = self.sized(handle, ty, shape, bytes)?;
        (variable.device, variable.stale) = (Some(value), true);
        Ok(variable)
    }

    /// Returns a variable with memory for a value of this type and shape.
    fn sized(&mut self, handle: i32, ty: TensorType, shape: &Shape, bytes: usize) -> Result<&mut Variable> {
        let variable = match self.variables.entry(handle) {
            btree_map::Entry::Occupied(entry) => entry.into_mut(),
            btree_map::Entry::Vacant(entry) => {
                let data = AlignedBuffer::charged(self.budget.as_ref().unwrap_or(Budget::unlimited()))?;
                entry.insert(Variable { ty, shape: shape.clone(), data, device: None, stale: false })
            }
        };
        variable.data.resize(bytes)?;
        variable.ty = ty;
        if variable.shape != *shape {
            variable.shape = shape.clone();
        }
        Ok(variable)
    }

    /// Creates the table of this number, unless it exists. The kind of an existing table does not change.
    ///
    /// # Errors
    /// As [`Budget::charge`].
    pub fn make_table(&mut self, number: i32, kind: TableKind) -> Result<()> {
        if let hash_map::Entry::Vacant(place) = self.tables.entry(number) {
            let entries = match kind {
                TableKind::StringsByInteger => Entries::StringsByInteger(HashMap::new()),
                TableKind::IntegersByString => Entries::IntegersByString(HashMap::new()),
            };
            let charge = self.budget.as_ref().unwrap_or(Budget::unlimited()).charge(0)?;
            place.insert(Table { entries, filled: false, charge });
        }
        Ok(())
    }

    /// Returns the table of this number.
    pub fn table(&mut self, number: i32) -> Option<&mut Table> {
        self.tables.get_mut(&number)
    }

    /// Records that the initialization subgraph `subgraph` runs, which it does once per interpreter. Returns false if
    /// it was recorded before.
    pub fn mark_initialized(&mut self, subgraph: usize) -> bool {
        self.initialized.insert(subgraph)
    }

    /// Drops the value of the variable that `container` and `name` identify.
    pub fn reset_variable(&mut self, container: &str, name: &str) {
        if let Some(handle) = self.handles.get(&(container.to_owned(), name.to_owned())) {
            self.variables.remove(handle);
        }
    }

    /// Clears the record of [`Resources::mark_initialized`] for the initialization subgraph `subgraph`.
    pub fn unmark_initialized(&mut self, subgraph: usize) {
        self.initialized.remove(&subgraph);
    }

    /// Drops all values, and clears the record of initialization.
    pub fn reset(&mut self) {
        self.variables.clear();
        self.tables.clear();
        self.initialized.clear();
    }

    /// Returns the values of all variables, for [`Resources::restore`]. Values that only a device holds are copied to
    /// the CPU, so that they outlive the device.
    ///
    /// # Errors
    /// As [`Budget::charge`] and [`DeviceValue::read`]; [`Error::OutOfMemory`] if an allocation fails.
    pub fn save(&self) -> Result<SavedVariables> {
        let copy = |(handle, v): (&i32, &Variable)| {
            let mut data = v.data.emptied();
            data.resize(v.data.len())?;
            match v.device.as_ref().filter(|_| v.stale) {
                Some(device) => device.read(data.bytes_mut())?,
                None => data.bytes_mut().copy_from_slice(v.data.bytes()),
            }
            Ok((*handle, Variable { ty: v.ty, shape: v.shape.clone(), data, device: None, stale: false }))
        };
        let variables = self.variables.iter().map(copy).collect::<Result<_>>()?;
        Ok(SavedVariables { variables, initialized: self.initialized.clone() })
    }

    /// Restores the saved values of all variables. Tables stay: they are filled once, always with the same entries.
    pub fn restore(&mut self, saved: SavedVariables) {
        (self.variables, self.initialized) = (saved.variables, saved.initialized);
    }

    /// Returns the bytes that all variables hold.
    pub fn bytes(&self) -> usize {
        self.variables.values().map(|v| v.data.len()).sum()
    }
}
