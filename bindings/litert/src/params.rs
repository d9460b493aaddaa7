//! Params from the C structures (`builtin_op_data.h`) that a runtime parses options into.
//!
//! The layout of a structure follows from the op's definition: its members are the op's params, in their order, in the
//! C types that [`c_type`] gives. A structure grows at its end when a version adds a param, and a runtime may be older
//! than that version: see [`Reach`].

use std::ffi::{c_char, c_int, c_void};

use delegraph_core::ops::{Codec, FieldInfo, FieldKind, OpDef, ParamValue, Params, definition};
use delegraph_core::{BuiltinOp, TensorType};

use crate::raw::{self, Result};

/// The extent of a runtime's structures: the version of an op and the release of TFLite whose fields they contain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    version: u32,
    release: Release,
}

/// Major and minor number of a release.
type Release = (u32, u32);

impl Reach {
    /// The structures of every runtime that loads delegates have the params of this release.
    const EVERY_RUNTIME: Release = (2, 5);
    /// The oldest of the tested runtimes that are built from LiteRT's sources is as new as this.
    const TESTED_LITERT: Release = (2, 18);

    /// The extent for a node of this version in any runtime. Since the runtime accepted the node, it knows the
    /// version's params.
    pub(crate) fn of_node(version: u32) -> Self {
        Reach { version, release: Self::EVERY_RUNTIME }
    }

    /// The extent for a node of this version in a tested runtime that is built from LiteRT's sources.
    pub(crate) fn in_litert(version: u32) -> Self {
        Reach { version, release: Self::TESTED_LITERT }
    }

    fn has(self, field: &FieldInfo, def: &OpDef) -> bool {
        field.since <= self.version.max(1)
            || def.min_runtime(field.since).and_then(release).is_some_and(|release| release <= self.release)
    }
}

fn release(text: &str) -> Option<Release> {
    let mut numbers = text.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Returns the params of a node of the builtin op `op` from the runtime's structure. `rank` is the rank of the first
/// input. [`Params::Undefined`] for an op that calls other subgraphs, which is not offered to delegates, and for an op
/// without a structure in any runtime.
///
/// # Safety
/// `data` is null, or points to the runtime's structure for this op, which has the extent that `reach` states.
pub(crate) unsafe fn read(op: BuiltinOp, reach: Reach, data: *const c_void, rank: usize) -> Result<Params> {
    let Some(def) = definition(op) else { return Ok(Params::Undefined) };
    if def.codec.fields.is_empty() {
        return Ok(Params::None);
    }
    let Some(members) = layout(&def.codec) else { return Ok(Params::Undefined) };
    if data.is_null() {
        return Err("it has no params".into());
    }
    let data = Data(data.cast());
    let mut params = def.codec.defaults().map_err(|e| e.to_string())?;
    // Structures grow at the end, so members after an absent one are also absent.
    for member in members.iter().take_while(|member| reach.has(member.field, def)) {
        // SAFETY: the structure has the member: the caller states its extent, and its layout is the one that `layout`
        // computes (a test compares it with LiteRT's).
        unsafe { member.read(data, rank, &mut params) }?;
    }
    Ok(params)
}

/// The storage of a param in a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CType {
    Bool,
    Int,
    Int64,
    Float,
    /// A type number of the C interface; 0 represents the default.
    Type,
    /// The number in the schema, or one more if the C interface uses 0 for "unknown".
    Enum {
        from_one: bool,
    },
    /// A string that ends with a zero byte.
    Text,
    /// `int32_t[8]` and an `int` with the count.
    Ints32,
    /// `int64_t[8]` and an `int` with the count.
    Ints64,
    /// `int64_t[8]`, one for each dimension of the first input.
    PerDimension,
    /// An `int` with the count, and `const float*`.
    Floats,
}

/// The C type of a param; `None` for kinds that no structure has.
fn c_type(structure: &str, kind: FieldKind) -> Option<CType> {
    Some(match (kind, structure) {
        (FieldKind::Bool, _) => CType::Bool,
        (FieldKind::Int32, _) => CType::Int,
        // The schema's seeds are wider than the structure's.
        (FieldKind::Int64, "TfLiteRandomParams") => CType::Int,
        (FieldKind::Int64, _) => CType::Int64,
        (FieldKind::Float32, _) => CType::Float,
        (FieldKind::Text, _) => CType::Text,
        (FieldKind::Type, _) => CType::Type,
        (FieldKind::Enum("Padding" | "MirrorPadMode" | "RngAlgorithm"), _) => CType::Enum { from_one: true },
        (
            FieldKind::Enum(
                "Activation"
                | "WeightsFormat"
                | "LstmKernelType"
                | "LshProjectionType"
                | "CombinerType"
                | "ReduceWindowFunction",
            ),
            _,
        ) => CType::Enum { from_one: false },
        (FieldKind::Ints32, _) => CType::Ints32,
        (FieldKind::Ints64, "TfLiteStablehloPadParams") => CType::PerDimension,
        (FieldKind::Ints64, _) => CType::Ints64,
        (FieldKind::Floats, _) => CType::Floats,
        _ => return None,
    })
}

impl CType {
    /// Size and alignment of the members that hold a value, in order.
    fn members(self) -> &'static [(usize, usize)] {
        const fn of<T>() -> (usize, usize) {
            (size_of::<T>(), align_of::<T>())
        }
        match self {
            CType::Bool => const { &[of::<u8>()] },
            CType::Int | CType::Type | CType::Enum { .. } => const { &[of::<c_int>()] },
            CType::Int64 => const { &[of::<i64>()] },
            CType::Float => const { &[of::<f32>()] },
            CType::Text => const { &[of::<*const c_char>()] },
            CType::Ints32 => const { &[of::<[i32; 8]>(), of::<c_int>()] },
            CType::Ints64 => const { &[of::<[i64; 8]>(), of::<c_int>()] },
            CType::PerDimension => const { &[of::<[i64; 8]>()] },
            CType::Floats => const { &[of::<c_int>(), of::<*const f32>()] },
        }
    }
}

/// The place of a param in a structure: the offsets of its first and its last member.
struct Member {
    field: &'static FieldInfo,
    ty: CType,
    at: [usize; 2],
}

#[cfg(all(unix, feature = "external"))]
impl Member {
    /// Returns the offset after the member.
    fn end(&self) -> usize {
        let last = self.ty.members().last().map_or(0, |(size, _)| *size);
        self.at[1] + last
    }
}

/// The members of the structure that holds the params, in C's layout. `None` if there is no structure, or a param is of
/// a kind that this reader does not know.
fn layout(codec: &Codec) -> Option<Vec<Member>> {
    let structure = codec.c_struct?;
    let mut end = 0_usize;
    let member = |field: &'static FieldInfo| {
        let ty = c_type(structure, field.kind)?;
        let mut offsets = ty.members().iter().map(|&(size, align)| {
            let at = end.next_multiple_of(align);
            end = at + size;
            at
        });
        let first = offsets.next()?;
        let last = offsets.last().unwrap_or(first);
        Some(Member { field, ty, at: [first, last] })
    };
    codec.fields.iter().map(member).collect()
}

/// The beginning of a structure.
#[derive(Clone, Copy)]
struct Data(*const u8);

/// Types for which any bytes are a valid value.
trait Plain: Copy {}
impl Plain for u8 {}
impl Plain for c_int {}
impl Plain for i64 {}
impl Plain for f32 {}
impl Plain for [i32; 8] {}
impl Plain for [i64; 8] {}
impl<T> Plain for *const T {}

impl Data {
    /// # Safety
    /// The structure has a member of type `T` at this offset.
    unsafe fn get<T: Plain>(self, offset: usize) -> T {
        // SAFETY: the caller guarantees the member; any bytes are a valid `T`.
        unsafe { self.0.add(offset).cast::<T>().read_unaligned() }
    }
}

impl Member {
    /// # Safety
    /// The structure at `data` has this member.
    unsafe fn read(&self, data: Data, rank: usize, params: &mut Params) -> Result<()> {
        let [first, last] = self.at;
        let name = self.field.name;
        let set =
            |params: &mut Params, value: ParamValue<'_>| params.set(name, &value).map_err(|e| e.to_string());
        // SAFETY: the caller guarantees the member, whose type and offsets are those of `CType::members`.
        let int = |at| unsafe { data.get::<c_int>(at) };
        match self.ty {
            // SAFETY: as above.
            CType::Bool => set(params, ParamValue::Bool(unsafe { data.get::<u8>(first) } != 0)),
            CType::Int => set(params, ParamValue::Int(int(first).into())),
            // SAFETY: as above.
            CType::Int64 => set(params, ParamValue::Int(unsafe { data.get(first) })),
            // SAFETY: as above.
            CType::Float => set(params, ParamValue::Float(unsafe { data.get(first) })),
            CType::Type => match int(first) {
                0 => Ok(()),
                code => set(params, type_value(raw::tensor_type(code)?)),
            },
            CType::Enum { from_one } => {
                let code = int(first);
                let value = ParamValue::Int(i64::from(code) - i64::from(from_one));
                params.set(name, &value).map_err(|_| format!("its {name} has the unknown value {code}"))
            }
            CType::Text => {
                // SAFETY: as above; the runtime's strings end with a zero byte.
                let text = unsafe { raw::text(data.get(first)) };
                set(params, ParamValue::Text(&text))
            }
            CType::Ints32 => {
                // SAFETY: as above.
                let items: [i32; 8] = unsafe { data.get(first) };
                set(params, ParamValue::Ints32(counted(&items, int(last))?))
            }
            CType::Ints64 => {
                // SAFETY: as above.
                let items: [i64; 8] = unsafe { data.get(first) };
                set(params, ParamValue::Ints(counted(&items, int(last))?))
            }
            CType::PerDimension => {
                // SAFETY: as above.
                let items: [i64; 8] = unsafe { data.get(first) };
                let items = items.get(..rank);
                let items = items.ok_or_else(|| format!("{rank} dimensions; at most 8 are supported"))?;
                set(params, ParamValue::Ints(items))
            }
            CType::Floats => {
                let count = raw::length(int(first), "the list of floats")?;
                // SAFETY: as above; the runtime's list has this length.
                let bytes = unsafe {
                    let list: *const f32 = data.get(last);
                    raw::bytes(list.cast(), count.saturating_mul(size_of::<f32>()), "the list of floats")
                }?;
                let floats: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect();
                set(params, ParamValue::Floats(&floats))
            }
        }
    }
}

/// The structure that holds the parsed options of a node, for a delegate that reads it.
#[cfg(all(unix, feature = "external"))]
pub struct Structure {
    words: Box<[u64]>,
    _texts: Vec<std::ffi::CString>,
    _floats: Vec<Box<[f32]>>,
}

#[cfg(all(unix, feature = "external"))]
impl Structure {
    /// Number of zero bytes after the known members, for a reader with members of later versions.
    const LATER_BYTES: usize = 256;

    /// Writes the params of a node of the builtin op `op`. `None` for an op without params.
    ///
    /// # Errors
    /// If the C interface has no structure for the op, `params` are not those of the op, or a value does not fit the
    /// structure.
    pub fn write(op: BuiltinOp, params: &Params) -> Result<Option<Self>> {
        let def = definition(op).ok_or("the op is unknown")?;
        if def.codec.fields.is_empty() {
            return Ok(None);
        }
        let members = layout(&def.codec);
        let members = members.ok_or("delegates of LiteRT know no structure for its params")?;
        let end = members.iter().map(Member::end).max().unwrap_or_default();
        let len = (end + Self::LATER_BYTES).div_ceil(size_of::<u64>());
        let mut structure = Structure { words: vec![0; len].into(), _texts: Vec::new(), _floats: Vec::new() };
        for member in &members {
            let value = params.get(member.field.name).ok_or("its params are unknown")?;
            structure.write_member(member, &value)?;
        }
        Ok(Some(structure))
    }

    /// Returns the address of the structure, which stays the same when this value moves.
    pub fn as_ptr(&self) -> *const c_void {
        self.words.as_ptr().cast()
    }

    fn write_member(&mut self, member: &Member, value: &ParamValue<'_>) -> Result<()> {
        let [first, last] = member.at;
        let wrong = || format!("its {} has the value {value}, which LiteRT does not have", member.field.name);
        let int = |value: i64| c_int::try_from(value).map_err(|_| wrong());
        match (member.ty, value) {
            (CType::Bool, ParamValue::Bool(value)) => self.put(first, &[u8::from(*value)]),
            (CType::Int, ParamValue::Int(value)) => self.put(first, &int(*value)?.to_ne_bytes()),
            (CType::Int64, ParamValue::Int(value)) => self.put(first, &value.to_ne_bytes()),
            (CType::Float, ParamValue::Float(value)) => self.put(first, &value.to_ne_bytes()),
            (CType::Type, ParamValue::Enum(code, _)) => {
                let ty = i8::try_from(*code).ok().and_then(TensorType::from_code).ok_or_else(wrong)?;
                self.put(first, &raw::type_code(ty).to_ne_bytes())
            }
            (CType::Enum { from_one }, ParamValue::Enum(code, _)) => {
                self.put(first, &int(code + i64::from(from_one))?.to_ne_bytes())
            }
            (CType::Text, ParamValue::Text(text)) => {
                let text = std::ffi::CString::new(*text).map_err(|_| wrong())?;
                self.expose(first, text.as_ptr().cast());
                self._texts.push(text);
                Ok(())
            }
            (CType::Ints32, ParamValue::Ints32(items)) => {
                self.put_all(first, items.iter().map(|item| item.to_ne_bytes()), 8)?;
                self.put(last, &int(items.len() as i64)?.to_ne_bytes())
            }
            (CType::Ints64, ParamValue::Ints(items)) => {
                self.put_all(first, items.iter().map(|item| item.to_ne_bytes()), 8)?;
                self.put(last, &int(items.len() as i64)?.to_ne_bytes())
            }
            (CType::PerDimension, ParamValue::Ints(items)) => {
                self.put_all(first, items.iter().map(|item| item.to_ne_bytes()), 8)
            }
            (CType::Floats, ParamValue::Floats(items)) => {
                let floats: Box<[f32]> = (*items).into();
                self.put(first, &int(items.len() as i64)?.to_ne_bytes())?;
                self.expose(last, floats.as_ptr().cast());
                self._floats.push(floats);
                Ok(())
            }
            _ => Err(wrong()),
        }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        // SAFETY: the words are initialized, any bytes are valid words, and the borrow is exclusive.
        let all = unsafe {
            std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast::<u8>(), size_of_val(&*self.words))
        };
        let target = all.get_mut(at..at + bytes.len()).ok_or("its params do not fit their structure")?;
        target.copy_from_slice(bytes);
        Ok(())
    }

    fn put_all<const N: usize>(
        &mut self,
        at: usize,
        items: impl ExactSizeIterator<Item = [u8; N]>,
        most: usize,
    ) -> Result<()> {
        if items.len() > most {
            return Err(format!("a list of {} items, where LiteRT has room for {most}", items.len()));
        }
        items.enumerate().try_for_each(|(i, item)| self.put(at + i * N, &item))
    }

    /// Stores a pointer, which the structure must keep valid.
    fn expose(&mut self, at: usize, pointer: *const u8) {
        debug_assert!(at + size_of::<*const u8>() <= size_of_val(&*self.words));
        // SAFETY: `layout` placed a pointer here, within the words.
        unsafe { self.words.as_mut_ptr().cast::<u8>().add(at).cast::<*const u8>().write_unaligned(pointer) };
    }
}

fn type_value(ty: TensorType) -> ParamValue<'static> {
    ParamValue::Enum(ty as i64, ty.name())
}

/// The first `count` of a list of at most eight.
fn counted<T>(items: &[T; 8], count: c_int) -> Result<&[T]> {
    let items = usize::try_from(count).ok().and_then(|count| items.get(..count));
    items.ok_or_else(|| format!("a list of {count} dimensions; 0 to 8 are supported"))
}

#[cfg(test)]
mod tests {
    use delegraph_core::ops::conv_2d::Conv2DParams;
    use delegraph_core::ops::fully_connected::FullyConnectedParams;
    use delegraph_core::ops::random::RandomParams;
    use delegraph_core::ops::reshape::ReshapeParams;
    use delegraph_core::ops::stablehlo_movement::StablehloPadParams;
    use delegraph_core::ops::{Activation, DEFS, Padding, WeightsFormat};

    use super::*;

    /// Integers, followed by more zeros than the largest structure holds.
    fn structure(ints: &[c_int]) -> Vec<c_int> {
        let mut all = ints.to_vec();
        all.resize(256, 0);
        all
    }

    fn read_ints(op: BuiltinOp, version: u32, ints: &[c_int]) -> Result<Params> {
        let data = structure(ints);
        // SAFETY: as large as the largest structure; all pointers in it are null.
        unsafe { read(op, Reach::of_node(version), data.as_ptr().cast(), 2) }
    }

    #[test]
    fn params_are_read_from_their_offsets() {
        let conv = read_ints(BuiltinOp::CONV_2D, 8, &[1, 2, 3, 3, 4, 5, 2]).unwrap();
        let expected = Conv2DParams::default()
            .padding(Padding::Same)
            .stride_w(2)
            .stride_h(3)
            .fused_activation_function(Activation::Relu6)
            .dilation_w_factor(4)
            .dilation_h_factor(5);
        assert_eq!(conv, expected.clone().quantized_bias_type(TensorType::Int32).into());
        // Version 8 has the bias type; a runtime that supports version 7 may not have it.
        let older = read_ints(BuiltinOp::CONV_2D, 7, &[1, 2, 3, 3, 4, 5, 2]).unwrap();
        assert_eq!(older, expected.into());
        let dense = read_ints(BuiltinOp::FULLY_CONNECTED, 11, &[1, 0, 0x0101, 4]).unwrap();
        let expected = FullyConnectedParams::default()
            .fused_activation_function(Activation::Relu)
            .weights_format(WeightsFormat::Default)
            .keep_num_dims(true)
            .asymmetric_quantize_inputs(true)
            .quantized_bias_type(TensorType::Int64);
        assert_eq!(dense, expected.into());
        let shape = read_ints(BuiltinOp::RESHAPE, 1, &[2, -1, 7, 7, 7, 7, 7, 7, 2]).unwrap();
        assert_eq!(shape, ReshapeParams::default().new_shape(vec![2, -1]).into());
        let one = 1.0_f32.to_bits() as c_int;
        let lstm = read_ints(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM, 4, &[4, one, 0, 0x01_0001]).unwrap();
        let Params::UnidirectionalSequenceLstm(lstm) = lstm else { panic!("{lstm:?}") };
        assert_eq!((lstm.fused_activation_function, lstm.cell_clip), (Activation::Tanh, 1.0));
        assert!(lstm.time_major && !lstm.asymmetric_quantize_inputs && lstm.diagonal_recurrent_tensors);
        let random = read_ints(BuiltinOp::RANDOM_UNIFORM, 1, &[-3, 4]).unwrap();
        assert_eq!(random, RandomParams::default().seed(-3).seed2(4).into());
        let mut pad = [0; 48];
        (pad[0], pad[2], pad[16], pad[34]) = (1, 2, 3, 4);
        let expected = StablehloPadParams::default().edge_padding_low(vec![1, 2]);
        let expected = expected.edge_padding_high(vec![3, 0]).interior_padding(vec![0, 4]);
        assert_eq!(read_ints(BuiltinOp::STABLEHLO_PAD, 1, &pad).unwrap(), expected.into());
    }

    #[test]
    fn a_tested_runtime_has_the_params_of_its_release_whatever_version_is_asked_for() {
        let data = structure(&[1, 2, 3, 3, 4, 5, 2]);
        // SAFETY: as large as the largest structure.
        let conv = unsafe { read(BuiltinOp::CONV_2D, Reach::in_litert(1), data.as_ptr().cast(), 4) };
        let Ok(Params::Conv2D(conv)) = conv else { panic!("{conv:?}") };
        assert_eq!(conv.quantized_bias_type, TensorType::Int32);
    }

    #[test]
    fn unknown_values_are_errors() {
        let error = |op, ints: &[c_int]| read_ints(op, 1, ints).unwrap_err();
        assert_eq!(error(BuiltinOp::CONV_2D, &[3]), "its padding has the unknown value 3");
        assert_eq!(error(BuiltinOp::CONV_2D, &[0]), "its padding has the unknown value 0");
        assert_eq!(error(BuiltinOp::ADD, &[6]), "its fused_activation_function has the unknown value 6");
        assert_eq!(error(BuiltinOp::CAST, &[1, 99]), "unknown tensor type 99");
        assert_eq!(
            error(BuiltinOp::RESHAPE, &[0, 0, 0, 0, 0, 0, 0, 0, 9]),
            "a list of 9 dimensions; 0 to 8 are supported"
        );
        // SAFETY: null is allowed.
        let without = unsafe { read(BuiltinOp::SOFTMAX, Reach::of_node(1), std::ptr::null(), 0) };
        assert_eq!(without.unwrap_err(), "it has no params");
        // SAFETY: as above.
        assert_eq!(unsafe { read(BuiltinOp::ABS, Reach::of_node(1), std::ptr::null(), 0) }, Ok(Params::None));
    }

    /// Written structures are read back, for every op and for values that differ from the defaults.
    #[test]
    #[cfg(all(unix, feature = "external"))]
    fn structures_are_read_as_they_are_written() {
        let mut seen = 0;
        for def in DEFS {
            let defaults = def.codec.defaults().unwrap();
            let mut changed = defaults.clone();
            for field in def.codec.fields {
                let value = match defaults.get(field.name).unwrap() {
                    ParamValue::Bool(value) => ParamValue::Bool(!value),
                    ParamValue::Int(value) => ParamValue::Int(value + 3),
                    ParamValue::Float(value) => ParamValue::Float(value + 0.5),
                    ParamValue::Enum(..) => ParamValue::Int(1),
                    ParamValue::Text(_) => ParamValue::Text("text"),
                    ParamValue::Ints32(_) => ParamValue::Ints32(&[4, -5]),
                    ParamValue::Ints(_) => ParamValue::Ints(&[6, -7]),
                    ParamValue::Floats(_) => ParamValue::Floats(&[0.25, -8.0, 9.0]),
                    _ => continue,
                };
                // Not every enum has a value 1, and a type must be one that the op supports.
                let _ = changed.set(field.name, &value);
            }
            // Where a list has an item for each dimension, an empty one is not read back.
            let whole = def.op != BuiltinOp::STABLEHLO_PAD;
            for params in whole.then_some(defaults).into_iter().chain([changed]) {
                let Ok(Some(structure)) = Structure::write(def.op, &params) else { continue };
                seen += 1;
                // SAFETY: a structure with every member of this op.
                let read = unsafe { read(def.op, Reach::of_node(u32::MAX), structure.as_ptr(), 2) };
                assert_eq!(read.unwrap(), params, "{:?}", def.op);
            }
        }
        assert!(seen > 120, "{seen} structures");
        let nothing = Structure::write(BuiltinOp::ABS, &Params::None).unwrap();
        assert!(nothing.is_none());
        let many = ReshapeParams::default().new_shape(vec![1; 9]).into();
        let error = Structure::write(BuiltinOp::RESHAPE, &many).err().unwrap();
        assert_eq!(error, "a list of 9 items, where LiteRT has room for 8");
        let calls = Structure::write(
            BuiltinOp::IF,
            &DEFS.iter().find(|d| d.op == BuiltinOp::IF).unwrap().codec.defaults().unwrap(),
        );
        assert!(calls.err().unwrap().contains("no structure"));
    }

    /// Ops that call subgraphs, and ops without a structure because no runtime runs them.
    #[test]
    fn all_other_ops_are_read() {
        let unread: Vec<&str> = DEFS
            .iter()
            .filter(|def| !def.codec.fields.is_empty() && layout(&def.codec).is_none())
            .filter_map(|def| def.op.variant_name())
            .collect();
        let (hlo, other): (Vec<&str>, Vec<&str>) =
            unread.into_iter().partition(|name| name.starts_with("STABLEHLO_"));
        assert_eq!(other, ["CALL_ONCE", "IF", "WHILE", "CALL", "CONCAT_EMBEDDINGS"]);
        let read =
            ["STABLEHLO_PAD", "STABLEHLO_GATHER", "STABLEHLO_CONCATENATE", "STABLEHLO_RNG_BIT_GENERATOR"];
        assert!(read.iter().all(|name| !hlo.contains(name)), "{hlo:?}");
    }

    /// The structures of `builtin_op_data.h` on a 64-bit target: the offset of each member, or of the first of those that
    /// hold a list. A param that a later version appends need not be listed; any other change that moves a member is an
    /// error.
    #[rustfmt::skip]
    const STRUCTURES: &[(&str, &str)] = &[
        ("TfLiteAddParams", "fused_activation_function@0 pot_scale_int16@4"),
        ("TfLiteArgMaxParams", "output_type@0"),
        ("TfLiteArgMinParams", "output_type@0"),
        ("TfLiteBatchMatMulParams", "adj_x@0 adj_y@1 asymmetric_quantize_inputs@2"),
        ("TfLiteBidirectionalSequenceLSTMParams", "fused_activation_function@0 cell_clip@4 proj_clip@8 merge_outputs@12 time_major@13 asymmetric_quantize_inputs@14"),
        ("TfLiteBidirectionalSequenceRNNParams", "time_major@0 fused_activation_function@4 merge_outputs@8 asymmetric_quantize_inputs@9"),
        ("TfLiteBucketizeParams", "boundaries@0"),
        ("TfLiteCastParams", "in_data_type@0 out_data_type@4"),
        ("TfLiteConcatenationParams", "axis@0 fused_activation_function@4"),
        ("TfLiteConv3DParams", "padding@0 stride_w@4 stride_h@8 stride_d@12 dilation_w_factor@16 dilation_h_factor@20 dilation_d_factor@24 fused_activation_function@28"),
        ("TfLiteConvParams", "padding@0 stride_w@4 stride_h@8 fused_activation_function@12 dilation_w_factor@16 dilation_h_factor@20 quantized_bias_type@24"),
        ("TfLiteCumsumParams", "exclusive@0 reverse@1"),
        ("TfLiteDepthToSpaceParams", "block_size@0"),
        ("TfLiteDepthwiseConvParams", "padding@0 stride_w@4 stride_h@8 depth_multiplier@12 fused_activation_function@16 dilation_w_factor@20 dilation_h_factor@24"),
        ("TfLiteDivParams", "fused_activation_function@0"),
        ("TfLiteEmbeddingLookupSparseParams", "combiner@0"),
        ("TfLiteFakeQuantParams", "min@0 max@4 num_bits@8 narrow_range@12"),
        ("TfLiteFullyConnectedParams", "fused_activation_function@0 weights_format@4 keep_num_dims@8 asymmetric_quantize_inputs@9 quantized_bias_type@12"),
        ("TfLiteGatherParams", "axis@0 batch_dims@4"),
        ("TfLiteGeluParams", "approximate@0"),
        ("TfLiteHashtableParams", "table_id@0 key_dtype@4 value_dtype@8"),
        ("TfLiteL2NormParams", "fused_activation_function@0"),
        ("TfLiteLSHProjectionParams", "type_@0"),
        ("TfLiteLSTMParams", "fused_activation_function@0 cell_clip@4 proj_clip@8 kernel_type@12 asymmetric_quantize_inputs@16"),
        ("TfLiteLeakyReluParams", "alpha@0"),
        ("TfLiteLocalResponseNormParams", "radius@0 bias@4 alpha@8 beta@12"),
        ("TfLiteMirrorPaddingParams", "mode@0"),
        ("TfLiteMulParams", "fused_activation_function@0"),
        ("TfLiteOneHotParams", "axis@0"),
        ("TfLitePackParams", "values_count@0 axis@4"),
        ("TfLitePoolParams", "padding@0 stride_w@4 stride_h@8 filter_width@12 filter_height@16 fused_activation_function@20"),
        ("TfLiteRNNParams", "fused_activation_function@0 asymmetric_quantize_inputs@4"),
        ("TfLiteRandomParams", "seed@0 seed2@4"),
        ("TfLiteReduceWindowParams", "reduce_function@0"),
        ("TfLiteReducerParams", "keep_dims@0"),
        ("TfLiteReshapeParams", "new_shape@0"),
        ("TfLiteResizeBilinearParams", "align_corners@0 half_pixel_centers@1"),
        ("TfLiteResizeNearestNeighborParams", "align_corners@0 half_pixel_centers@1"),
        ("TfLiteReverseSequenceParams", "seq_dim@0 batch_dim@4"),
        ("TfLiteRngBitGeneratorParams", "algorithm@0"),
        ("TfLiteSVDFParams", "rank@0 fused_activation_function@4 asymmetric_quantize_inputs@8"),
        ("TfLiteSequenceRNNParams", "time_major@0 fused_activation_function@4 asymmetric_quantize_inputs@8"),
        ("TfLiteShapeParams", "out_type@0"),
        ("TfLiteSkipGramParams", "ngram_size@0 max_skip_size@4 include_all_ngrams@8"),
        ("TfLiteSoftmaxParams", "beta@0"),
        ("TfLiteSpaceToDepthParams", "block_size@0"),
        ("TfLiteSparseToDenseParams", "validate_indices@0"),
        ("TfLiteSplitParams", "num_splits@0"),
        ("TfLiteSplitVParams", "num_splits@0"),
        ("TfLiteSqueezeParams", "squeeze_dims@0"),
        ("TfLiteStablehloConcatenateParams", "dimension@0"),
        ("TfLiteStablehloGatherParams", "offset_dims@0 collapsed_slice_dims@72 start_index_map@144 index_vector_dim@216 slice_sizes@224 indices_are_sorted@292"),
        ("TfLiteStablehloPadParams", "edge_padding_low@0 edge_padding_high@64 interior_padding@128"),
        ("TfLiteStridedSliceParams", "begin_mask@0 end_mask@4 ellipsis_mask@8 new_axis_mask@12 shrink_axis_mask@16 offset@20"),
        ("TfLiteSubParams", "fused_activation_function@0 pot_scale_int16@4"),
        ("TfLiteTransposeConvParams", "padding@0 stride_w@4 stride_h@8 fused_activation_function@12 quantized_bias_type@16"),
        ("TfLiteUnidirectionalSequenceLSTMParams", "fused_activation_function@0 cell_clip@4 proj_clip@8 time_major@12 asymmetric_quantize_inputs@13 diagonal_recurrent_tensors@14"),
        ("TfLiteUniqueParams", "idx_out_type@0"),
        ("TfLiteUnpackParams", "num@0 axis@4"),
        ("TfLiteVarHandleParams", "container@0 shared_name@8"),
    ];

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn layouts_are_those_of_the_c_interface() {
        let mut seen = std::collections::BTreeSet::new();
        for def in DEFS {
            let Some(name) = def.codec.c_struct else { continue };
            let recorded = STRUCTURES.iter().find(|(structure, _)| *structure == name);
            let (_, recorded) = recorded.unwrap_or_else(|| panic!("{name} is not in the table"));
            let members =
                layout(&def.codec).unwrap_or_else(|| panic!("{name} has a param of an unknown kind"));
            let recorded: Vec<&str> = recorded.split(' ').collect();
            let found: Vec<_> = members.iter().map(|m| format!("{}@{}", m.field.name, m.at[0])).collect();
            assert!(found.len() >= recorded.len(), "{name}: {found:?}");
            assert_eq!(found[..recorded.len()], recorded, "{name}");
            let appended = &members[recorded.len()..];
            assert!(appended.iter().all(|m| m.field.since > 1), "{name}: {found:?}");
            seen.insert(name);
        }
        assert_eq!(seen.len(), STRUCTURES.len());
    }
}
