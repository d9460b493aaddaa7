//! What a case's op reads and writes: types, shapes, quantization, and data that a seed gives.

use delegraph_core::ops::cast::CastParams;
use delegraph_core::quantization::Affine;
use delegraph_core::sparsity::Sparsity;
use delegraph_core::{BuiltinOp, Element, Quantization, Shape, SubgraphBuilder, TensorId, TensorType};
use delegraph_interpreter::seeded::SplitMix64;

/// The seed of all cases. Operands differ by their index and by the invocation.
const SEED: u64 = 2;

/// Where an operand's data comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The caller gives it.
    Fed,
    /// The file holds it.
    Constant,
    /// State, zero at first.
    Variable,
}

/// What data it is.
#[derive(Debug, Clone)]
enum Values {
    /// Uniform in a range; integers up to the upper end, floats below it.
    Range(f64, f64),
    /// The same, and every now and then one of these.
    Mixed(f64, f64, &'static [f64]),
    /// These bytes in every invocation.
    Bytes(Vec<u8>),
}

/// An operand of the op.
#[derive(Debug, Clone)]
pub struct Operand {
    /// Element type.
    pub ty: TensorType,
    /// Shape.
    pub shape: Shape,
    /// Where its data comes from.
    pub kind: Kind,
    /// Quantization, if any.
    pub quantization: Option<Quantization>,
    /// What its data is made from.
    pub(super) seed: u64,
    /// A constant of floats that the file holds in 16 bits, behind DEQUANTIZE.
    pub(super) half: bool,
    sparsity: Option<Sparsity>,
    /// A scale for every block of this many elements, in a tensor of their own.
    block: Option<usize>,
    values: Values,
}

/// An operand that the caller fills, over all of a small integer type, from -4 to 4 of the wider ones, from 0 to 4 of
/// those without sign.
pub(super) fn x(ty: TensorType, shape: &[usize]) -> Operand {
    use TensorType::*;
    let values = match ty {
        Bool => (0.0, 1.0),
        Int8 => (-128.0, 127.0),
        UInt8 => (0.0, 255.0),
        Int16 => (-32768.0, 32767.0),
        Int4 => (-8.0, 7.0),
        UInt4 => (0.0, 15.0),
        Int2 => (-2.0, 1.0),
        UInt16 | UInt32 | UInt64 => (0.0, 4.0),
        _ => (-4.0, 4.0),
    };
    let values = Values::Range(values.0, values.1);
    Operand {
        ty,
        shape: Shape::new(shape),
        kind: Kind::Fed,
        quantization: None,
        seed: SEED,
        half: false,
        sparsity: None,
        block: None,
        values,
    }
}

/// An operand with these elements, which the caller gives.
pub(super) fn given<E: Element>(shape: &[usize], elements: &[E]) -> Operand {
    x(E::TYPE, shape).with(elements)
}

/// A constant with these elements.
pub(super) fn known<E: Element>(shape: &[usize], elements: &[E]) -> Operand {
    given(shape, elements).constant()
}

/// A constant vector.
pub(super) fn list(elements: &[i32]) -> Operand {
    known(&[elements.len()], elements)
}

/// An operand of strings, which the caller gives.
pub(super) fn strings(shape: &[usize], elements: &[&str]) -> Operand {
    let mut ends = (elements.len() + 2) * 4;
    let mut bytes = (elements.len() as i32).to_le_bytes().to_vec();
    bytes.extend((ends as i32).to_le_bytes());
    for element in elements {
        ends += element.len();
        bytes.extend((ends as i32).to_le_bytes());
    }
    elements.iter().for_each(|element| bytes.extend(element.as_bytes()));
    Operand { values: Values::Bytes(bytes), ..x(TensorType::String, shape) }
}

impl Operand {
    /// The file holds the data.
    pub fn constant(self) -> Self {
        Operand { kind: Kind::Constant, ..self }
    }

    /// The file holds the data in 16 bits, behind DEQUANTIZE.
    pub(super) fn halved(self) -> Self {
        Operand { kind: Kind::Constant, half: true, ..self }
    }

    /// State that lives from one invocation to the next.
    pub fn variable(self) -> Self {
        Operand { kind: Kind::Variable, ..self }
    }

    /// Data from `low` to `high`.
    pub fn range(self, low: f64, high: f64) -> Self {
        Operand { values: Values::Range(low, high), ..self }
    }

    /// Some of its elements are these values, in turn; integers are clamped to their type.
    pub(super) fn mixed(self, values: &'static [f64]) -> Self {
        let (low, high) = self.limits().unwrap_or((-4.0, 4.0));
        Operand { values: Values::Mixed(low, high, values), ..self }
    }

    fn limits(&self) -> Option<(f64, f64)> {
        match self.values {
            Values::Range(low, high) | Values::Mixed(low, high, _) => Some((low, high)),
            Values::Bytes(_) => None,
        }
    }

    /// Whether its data may hold NaN, infinities or denormals.
    pub(super) fn may_be_special(&self) -> bool {
        !matches!(self.values, Values::Range(..))
    }

    /// The largest magnitude of its real values as operand `index`, where they are floats or quantized.
    pub(super) fn magnitude(&self, index: usize) -> Option<f64> {
        use TensorType::*;
        let largest = match self.limits() {
            Some((low, high)) => low.abs().max(high.abs()),
            None => {
                let elements = crate::compare::numbers(self.ty, &self.data(index, 0))?;
                elements.iter().filter(|v| v.is_finite()).fold(0.0, |m, v| v.abs().max(m))
            }
        };
        let affine = self.quantization.as_ref().and_then(|q| q.affine());
        match (self.ty, affine) {
            (Float32 | Float64 | Float16 | BFloat16 | Complex64 | Complex128, _) => Some(largest),
            (Int8 | UInt8 | Int16 | Int4 | Int2 | UInt4, Some(affine)) => {
                let scale = affine.scales.iter().fold(0f32, |m, s| m.max(*s));
                Some(largest * f64::from(scale))
            }
            _ => None,
        }
    }

    /// These elements; the last ones are repeated from the first where there are fewer than the shape has.
    pub fn with<E: Element>(self, elements: &[E]) -> Self {
        let bytes: Vec<u8> = elements.iter().cycle().take(self.shape.elements()).flat_map(bytes_of).collect();
        self.bytes(bytes)
    }

    /// The same elements in another shape.
    pub fn reshaped(self, shape: &[usize]) -> Self {
        Operand { shape: Shape::new(shape), ..self }
    }

    /// These bytes, as a file would hold them.
    pub fn bytes(self, bytes: Vec<u8>) -> Self {
        Operand { values: Values::Bytes(bytes), ..self }
    }

    /// One scale and zero point.
    pub fn q(self, scale: f32, zero_point: i64) -> Self {
        Operand { quantization: Some(Quantization::per_tensor(scale, zero_point)), ..self }
    }

    /// A scale per index of `dimension`, growing from `scale`.
    pub fn channels(self, scale: f32, dimension: usize) -> Self {
        let count = self.shape.get(dimension).copied().unwrap_or(1);
        self.affine(growing(scale, count), dimension)
    }

    /// These scales along `dimension`, zero points 0.
    pub fn affine(self, scales: Vec<f32>, dimension: usize) -> Self {
        let zero_points = vec![0; scales.len()].into();
        self.quantization(Quantization::Affine(Affine { scales, zero_points, dimension }))
    }

    /// A scale for every `block` elements of a constant, from `scale` to twice as much, in a tensor of float16.
    pub fn blocks(self, scale: f32, block: usize) -> Self {
        Operand { block: Some(block), ..self.q(scale, 0) }
    }

    /// Any quantization.
    pub fn quantization(self, quantization: Quantization) -> Self {
        Operand { quantization: Some(quantization), ..self }
    }

    /// The scale and zero point that cases use for a type, where the type is a quantized one.
    pub fn auto(self) -> Self {
        match quantum(self.ty) {
            Some((scale, zero_point)) => self.q(scale, zero_point),
            None => self,
        }
    }

    /// Only some elements are stored.
    pub fn sparse(self, sparsity: Sparsity) -> Self {
        Operand { sparsity: Some(sparsity), ..self }
    }

    /// The data in invocation `step`, where it is operand `index`.
    pub fn data(&self, index: usize, step: usize) -> Vec<u8> {
        let (low, high) = match &self.values {
            Values::Bytes(bytes) => return bytes.clone(),
            Values::Range(low, high) | Values::Mixed(low, high, _) => (*low, *high),
        };
        let mut g = self.generator(index, step);
        let mut special = self.special();
        let mut float = || {
            let drawn = low + (high - low) * f64::from(g.draw_f32() + 1.0) / 2.0;
            special().unwrap_or(drawn)
        };
        let n = self.shape.elements();
        use TensorType::*;
        fn each<const N: usize>(n: usize, f: impl FnMut() -> [u8; N]) -> Vec<u8> {
            std::iter::repeat_with(f).take(n).flatten().collect()
        }
        match self.ty {
            Float32 if self.half => each(n, || half::f16::from_f64(float()).to_f32().to_le_bytes()),
            Float32 => each(n, || (float() as f32).to_le_bytes()),
            Float16 => each(n, || half::f16::from_f64(float()).to_le_bytes()),
            BFloat16 => each(n, || half::bf16::from_f64(float()).to_le_bytes()),
            Float64 => each(n, || float().to_le_bytes()),
            Complex64 => each(2 * n, || (float() as f32).to_le_bytes()),
            Complex128 => each(2 * n, || float().to_le_bytes()),
            _ => {
                let count = (high - low) as u64 + 1;
                let (least, most) = integers(self.ty);
                let mut integer = || {
                    let drawn = low as i64 + (g.draw() % count) as i64;
                    special().map_or(drawn, |v| v.clamp(least, most) as i64)
                };
                match self.ty.bits() {
                    Some(64) => each(n, || integer().to_le_bytes()),
                    Some(32) => each(n, || (integer() as i32).to_le_bytes()),
                    Some(16) => each(n, || (integer() as i16).to_le_bytes()),
                    Some(8) => each(n, || (integer() as i8).to_le_bytes()),
                    Some(bits) => pack(&each(n, || (integer() as i8).to_le_bytes()), bits),
                    None => Vec::new(),
                }
            }
        }
    }

    fn generator(&self, index: usize, step: usize) -> SplitMix64 {
        match self.seed {
            SEED => SplitMix64::new(SEED, index, step),
            // Streams of neighbours are one sequence, shifted; another draw tells them apart.
            seed => SplitMix64::new(SplitMix64::new(seed, index, step).draw(), 0, 0),
        }
    }

    /// Every third element is special where there are special ones.
    fn special(&self) -> impl FnMut() -> Option<f64> + use<> {
        let values: &'static [f64] = if let Values::Mixed(_, _, values) = self.values { values } else { &[] };
        let mut count = 0usize;
        move || {
            count += 1;
            let wanted = count.is_multiple_of(3) && !values.is_empty();
            wanted.then(|| values.get((count / 3 - 1) % values.len()).copied()).flatten()
        }
    }

    /// The type of what the caller gives.
    pub fn fed_type(&self) -> TensorType {
        outside(self.ty)
    }

    /// What the caller gives in invocation `step`, where it is operand `index`.
    pub fn fed_data(&self, index: usize, step: usize) -> Vec<u8> {
        let data = self.data(index, step);
        match self.ty {
            TensorType::Int4 | TensorType::Int2 | TensorType::UInt4 => {
                let bits = self.ty.bits().unwrap_or(8);
                let value = |i: usize| {
                    let raw = (data.get(i * bits / 8).copied().unwrap_or(0) >> (i * bits % 8)) << (8 - bits);
                    let signed = (raw as i8) >> (8 - bits);
                    if self.ty == TensorType::UInt4 {
                        f32::from(raw >> (8 - bits))
                    } else {
                        f32::from(signed)
                    }
                };
                (0..self.shape.elements()).flat_map(|i| value(i).to_le_bytes()).collect()
            }
            TensorType::BFloat16 => {
                let wide = |c: &[u8; 2]| half::bf16::from_le_bytes(*c).to_f32().to_le_bytes();
                data.as_chunks().0.iter().flat_map(wide).collect()
            }
            _ => data,
        }
    }

    /// Gives it another type, with seeded data.
    pub(super) fn retype(&mut self, ty: TensorType) {
        let Operand { shape, kind, quantization, .. } = self.clone();
        *self = Operand { kind, quantization, ..x(ty, &shape) };
        if ty == TensorType::String {
            let elements = vec!["a"; shape.elements()];
            *self = Operand { kind, ..strings(&shape, &elements) };
        }
    }

    /// Adds it to a graph.
    pub(super) fn add(&self, graph: &mut SubgraphBuilder, name: &str, index: usize) -> TensorId {
        let id = match self.kind {
            Kind::Fed if outside(self.ty) != self.ty => {
                let wide = graph.input(&format!("{name}_wide"), outside(self.ty), self.shape.clone());
                let id = graph.tensor(name, self.ty, self.shape.clone());
                let params = CastParams { in_data_type: outside(self.ty), out_data_type: self.ty };
                graph.node(BuiltinOp::CAST, params).inputs([wide]).writes([id]);
                id
            }
            Kind::Fed => graph.input(name, self.ty, self.shape.clone()),
            Kind::Variable => graph.variable(name, self.ty, self.shape.clone()),
            Kind::Constant if self.half => {
                let narrow = |c: &[u8; 4]| half::f16::from_f32(f32::from_le_bytes(*c)).to_le_bytes();
                let data: Vec<u8> = self.data(index, 0).as_chunks().0.iter().flat_map(narrow).collect();
                let halves = graph.constant_bytes(
                    &format!("{name}_half"),
                    TensorType::Float16,
                    self.shape.clone(),
                    &data,
                );
                let id = graph.tensor(name, self.ty, self.shape.clone());
                graph.node(BuiltinOp::DEQUANTIZE, delegraph_core::Params::None).inputs([halves]).writes([id]);
                id
            }
            Kind::Constant => graph.constant_bytes(name, self.ty, self.shape.clone(), &self.data(index, 0)),
        };
        if let (Some(block), Some(affine)) = (self.block, self.quantization.as_ref().and_then(|q| q.affine()))
        {
            let count = self.shape.elements() / block;
            let scale = |i| half::f16::from_f32(affine.scales[0] * (1.0 + (i % 9) as f32 / 8.0));
            let scales: Vec<half::f16> = (0..count).map(scale).collect();
            let scales = graph.constant(&format!("{name}_scales"), [count], &scales);
            let quantization =
                Quantization::Blockwise { scales: scales.0, zero_points: None, block_size: block };
            graph.quantize(id, quantization);
        } else if let Some(quantization) = &self.quantization {
            graph.quantize(id, quantization.clone());
        }
        if let Some(sparsity) = &self.sparsity {
            graph.sparse(id, sparsity.clone());
        }
        id
    }
}

/// The type that stands for `ty` in a model's inputs and outputs: LiteRT's Python interface does not know all. A CAST is
/// between them.
pub(super) fn outside(ty: TensorType) -> TensorType {
    match ty {
        TensorType::BFloat16 | TensorType::Int4 | TensorType::Int2 | TensorType::UInt4 => TensorType::Float32,
        ty => ty,
    }
}

/// Scales from `scale` on, each a quarter of it greater.
pub(super) fn growing(scale: f32, count: usize) -> Vec<f32> {
    (0..count).map(|i| scale * (1.0 + i as f32 / 4.0)).collect()
}

/// The scale and zero point that cases use for a quantized type.
pub(super) fn quantum(ty: TensorType) -> Option<(f32, i64)> {
    match ty {
        TensorType::Int8 => Some((0.0625, -3)),
        TensorType::UInt8 => Some((0.0625, 125)),
        TensorType::Int16 => Some((0.0003, 0)),
        _ => None,
    }
}

/// The ends of an integer type's range.
pub(super) fn integers(ty: TensorType) -> (f64, f64) {
    use TensorType::*;
    match ty {
        Bool => (0.0, 1.0),
        UInt4 => (0.0, 15.0),
        UInt8 => (0.0, 255.0),
        UInt16 => (0.0, 65_535.0),
        UInt32 => (0.0, f64::from(u32::MAX)),
        UInt64 => (0.0, 2f64.powi(63)),
        _ => {
            let half = 2f64.powi(ty.bits().unwrap_or(8) as i32 - 1);
            (-half, half - 1.0)
        }
    }
}

fn bytes_of<E: Element>(element: &E) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<E>()];
    bytes.copy_from_slice(bytemuck::bytes_of(element));
    bytes
}

/// Elements of fewer than eight bits, low bits first.
fn pack(elements: &[u8], bits: usize) -> Vec<u8> {
    let byte = |chunk: &[u8]| {
        chunk.iter().enumerate().fold(0u8, |byte, (i, v)| byte | ((v & ((1 << bits) - 1)) << (i * bits)))
    };
    elements.chunks(8 / bits).map(byte).collect()
}
