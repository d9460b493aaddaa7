//! The small GPU graph between the model and the device: values, and steps that write them.
//!
//! Lowering (`ops`) builds it, `passes` makes it smaller, `plan` gives values their buffers, `kernel` records it.

use std::borrow::Cow;

use delegraph_core::NodeId;
use delegraph_shaders as shaders;
use shaders::quantize::Affine;
use shaders::{Activation, Binding, Caps, Epilogue, Kernel, ShaderError};

use crate::words::Words;

/// Index of a value in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ValueId(pub usize);

/// What an element of a value is; each takes one 32-bit word on the device.
pub(crate) use shaders::Element;

/// A tensor on the device.
#[derive(Debug, Clone)]
pub(crate) struct Value<'a> {
    /// Dimensions, outermost first.
    pub shape: Vec<u32>,
    /// What it holds.
    pub element: Element,
    /// How the tensor outside looks, where this is one.
    pub how: Words,
    /// What its integers stand for.
    pub quantization: Option<Affine>,
    /// Where its data comes from.
    pub source: Source<'a>,
}

impl<'a> Value<'a> {
    /// A value that is no tensor of the model.
    pub(crate) fn new(shape: &[u32], element: Element, source: Source<'a>) -> Self {
        Value { shape: shape.to_vec(), element, how: Words::Same, quantization: None, source }
    }

    /// Bytes on the device.
    pub(crate) fn bytes(&self) -> u64 {
        self.shape.iter().map(|&d| u64::from(d)).product::<u64>() * 4
    }
}

/// Where a value's data comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source<'a> {
    /// Uploaded before each run.
    Input,
    /// Written by one step, or by several that write disjoint parts.
    Steps,
    /// Uploaded once.
    Constant(Cow<'a, [u8]>),
    /// The bytes of another value from this offset on.
    View {
        /// The other value.
        of: ValueId,
        /// In bytes.
        offset: u64,
    },
}

/// Filter and bias as the model stores them; packed for the kernel when the graph is final.
#[derive(Debug, Clone)]
pub(crate) enum Weights<'a> {
    /// Floats.
    Floats { filter: Cow<'a, [f32]>, bias: Option<Cow<'a, [f32]>> },
    /// Integers, and the words of each output channel.
    Integers { filter: Cow<'a, [i8]>, channels: Vec<u32> },
}

impl Weights<'_> {
    /// Bytes of the filter.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Weights::Floats { filter, .. } => size_of_val(&**filter) as u64,
            Weights::Integers { filter, .. } => filter.len() as u64,
        }
    }
}

/// One dispatch.
#[derive(Debug, Clone)]
pub(crate) struct Step<'a> {
    /// What it computes.
    pub spec: Spec,
    /// What `Binding::Input` counts.
    pub inputs: Vec<ValueId>,
    /// `Binding::Weights`
    pub weights: Option<Weights<'a>>,
    /// `Binding::Residual`
    pub residual: Option<ValueId>,
    /// `Binding::Slope`
    pub slope: Option<ValueId>,
    /// `Binding::Output`
    pub output: ValueId,
    /// The nodes that it runs, in the model's order.
    pub nodes: Vec<NodeId>,
}

impl Step<'_> {
    /// Every value that the step reads.
    pub(crate) fn reads(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.inputs.iter().copied().chain(self.residual).chain(self.slope)
    }
}

/// Copies one input of a concatenation into its part of the output.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Join {
    /// The whole concatenation.
    pub spec: shaders::concatenation::Spec,
    /// Which input.
    pub part: usize,
}

impl Join {
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let mut kernel = self.spec.kernel(self.part, caps)?;
        // The step has only this input.
        for binding in &mut kernel.bindings {
            if let Binding::Input(n) = binding {
                *n = 0;
            }
        }
        Ok(kernel)
    }

    /// Where the part begins in the output, in bytes, if it is one piece of memory there.
    pub(crate) fn piece(&self) -> Option<u64> {
        let input = self.spec.inputs.get(self.part)?;
        let (outer, inner) = input.split_at_checked(self.spec.axis)?;
        let inner: u64 = inner.iter().skip(1).map(|&d| u64::from(d)).product();
        let before = self.spec.inputs.iter().take(self.part);
        let before: u64 = before.filter_map(|i| i.get(self.spec.axis)).map(|&d| u64::from(d)).sum();
        outer.iter().all(|&d| d == 1).then_some(before * inner * 4)
    }
}

/// A kernel whose weights are its second input, which other steps laid out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Computed(pub Box<Spec>);

impl Computed {
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let mut kernel = match &*self.0 {
            // The filter may have another size after a resize.
            Spec::Conv2D(spec) => spec.any_filter(caps)?,
            Spec::DepthwiseConv2D(spec) => spec.any_window(caps)?,
            Spec::TransposeConv(spec) => spec.any_filter(caps)?,
            spec => spec.kernel(caps)?,
        };
        for binding in kernel.bindings.iter_mut().filter(|binding| **binding == Binding::Weights) {
            *binding = Binding::Input(1);
        }
        Ok(kernel)
    }
}

macro_rules! specs {
    ($($variant:ident($spec:path),)*) => {
        /// A kernel's spec, of any family.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub(crate) enum Spec {
            $($variant($spec),)*
        }

        impl Spec {
            /// The kernel for a device with `caps`.
            pub(crate) fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
                match self {
                    $(Spec::$variant(spec) => spec.kernel(caps),)*
                }
            }
        }

        $(impl From<$spec> for Spec {
            fn from(spec: $spec) -> Self {
                Spec::$variant(spec)
            }
        })*
    };
}

specs! {
    ArgMinMax(shaders::arg_min_max::Spec),
    BatchMatMul(shaders::batch_matmul::Spec),
    BatchMatMulWide(shaders::batch_matmul_wide::Spec),
    Binary(shaders::binary::Spec),
    BinaryQuantized(shaders::binary_quantized::Spec),
    Bitcast(shaders::bitcast::Spec),
    Cast(shaders::cast::Spec),
    ComplexAbs(shaders::complex::Abs),
    Computed(Computed),
    Conv2D(shaders::conv_2d::Spec),
    Conv3D(shaders::conv_3d::Spec),
    Cumsum(shaders::cumsum::Spec),
    Custom(crate::custom::Spec),
    DepthToSpace(shaders::depth_to_space::Spec),
    DepthwiseConv2D(shaders::depthwise_conv_2d::Spec),
    DynamicUpdateSlice(shaders::dynamic_update_slice::Spec),
    EmbeddingLookup(shaders::embedding_lookup::Spec),
    FullyConnected(shaders::fully_connected::Spec),
    Gather(shaders::gather::Spec),
    GatherNd(shaders::gather_nd::Spec),
    Join(Join),
    FourierTransform(shaders::complex::Transform),
    L2Normalization(shaders::l2_normalization::Spec),
    LandmarksCrop(shaders::landmarks::Crop),
    LandmarksTransform(shaders::landmarks::Transform),
    LocalResponseNormalization(shaders::local_response_normalization::Spec),
    Lstm(shaders::lstm::Spec),
    LstmBasic(shaders::lstm_basic::Spec),
    LstmQuantized(shaders::lstm_quantized::Spec),
    MaxPool(shaders::max_pooling::Pool),
    MaxUnpool(shaders::max_pooling::Unpool),
    OneHot(shaders::one_hot::Spec),
    Pad(shaders::pad::Spec),
    Pool2D(shaders::pool_2d::Spec),
    Quantize(shaders::quantize::Spec),
    Reduce(shaders::reduce::Spec),
    ReduceOrdered(shaders::reduce_ordered::Spec),
    Resample(shaders::resample::Spec),
    Rescale(shaders::rescale::Spec),
    Resize(shaders::resize::Spec),
    Scatter(shaders::scatter::Spec),
    Rnn(shaders::rnn::Spec),
    RowScales(shaders::row_scales::Spec),
    RowSteps(shaders::row_steps::Spec),
    Select(shaders::select::Spec),
    Slice(shaders::slice::Spec),
    Softmax(shaders::softmax::Spec),
    SoftmaxQuantized(shaders::softmax_quantized::Spec),
    SoftmaxWide(shaders::softmax_wide::Spec),
    Table(shaders::table::Spec),
    Tile(shaders::tile::Spec),
    TopK(shaders::topk::Spec),
    Transpose(shaders::transpose::Spec),
    TransposeConv(shaders::transpose_conv::Spec),
    Unary(shaders::unary::Spec),
}

impl Spec {
    /// The epilogue, where the kernel has one.
    pub(crate) fn epilogue_mut(&mut self) -> Option<&mut Epilogue> {
        let epilogue = match self {
            Spec::Conv2D(spec) => Some(&mut spec.epilogue),
            Spec::DepthwiseConv2D(spec) => Some(&mut spec.epilogue),
            Spec::FullyConnected(spec) => Some(&mut spec.epilogue),
            Spec::TransposeConv(spec) => Some(&mut spec.epilogue),
            _ => None,
        };
        epilogue.filter(|epilogue| !epilogue.is_fixed())
    }

    /// Where a function of the result goes, where the kernel has room for one.
    pub(crate) fn activation_mut(&mut self) -> Option<&mut Activation> {
        match self {
            Spec::Binary(spec) => {
                (spec.element == Element::F32 && !spec.op.compares()).then_some(&mut spec.activation)
            }
            Spec::Conv3D(spec) => Some(&mut spec.activation),
            Spec::BatchMatMul(spec) => spec.integers.is_none().then_some(&mut spec.activation),
            Spec::Pool2D(spec) => Some(&mut spec.activation),
            Spec::Reduce(spec) => (spec.element == Element::F32).then_some(&mut spec.activation),
            _ => {
                let epilogue = self.epilogue_mut()?;
                Some(epilogue.residual.as_mut().unwrap_or(&mut epilogue.activation))
            }
        }
    }

    /// Where the kernel is told that its weights are halves, if it can have such.
    pub(crate) fn halves_mut(&mut self) -> Option<&mut bool> {
        match self {
            Spec::Conv2D(spec) => Some(&mut spec.epilogue.halves),
            Spec::FullyConnected(spec) => Some(&mut spec.epilogue.halves),
            Spec::TransposeConv(spec) => Some(&mut spec.epilogue.halves),
            _ => None,
        }
    }

    fn holds_halves(&self) -> bool {
        match self {
            Spec::Conv2D(spec) => spec.epilogue.halves,
            Spec::FullyConnected(spec) => spec.epilogue.halves,
            Spec::TransposeConv(spec) => spec.epilogue.halves,
            _ => false,
        }
    }

    /// Filter and bias as the kernel reads them.
    pub(crate) fn pack_weights(&self, weights: &Weights<'_>) -> Option<Vec<u8>> {
        fn bytes<T: bytemuck::Pod>(words: Vec<T>) -> Vec<u8> {
            bytemuck::pod_collect_to_vec(&words)
        }
        // A bias takes whole vectors.
        let fours = |channels: u32| channels.next_multiple_of(4) as usize;
        Some(match weights {
            Weights::Floats { filter, bias } if self.holds_halves() => bytes(match self {
                Spec::Conv2D(spec) => {
                    shaders::halves(&spec.pack_weights(filter, bias.as_deref()), fours(spec.output[3]))
                }
                Spec::FullyConnected(spec) => {
                    shaders::halves(&spec.pack_weights(filter, bias.as_deref()), fours(spec.outputs))
                }
                Spec::TransposeConv(spec) => {
                    shaders::halves(&spec.pack_weights(filter, bias.as_deref()), fours(spec.output[3]))
                }
                _ => return None,
            }),
            Weights::Floats { filter, bias } => bytes(match self {
                Spec::Conv2D(spec) => spec.pack_weights(filter, bias.as_deref()),
                Spec::DepthwiseConv2D(spec) => spec.pack_weights(filter, bias.as_deref()),
                Spec::FullyConnected(spec) => spec.pack_weights(filter, bias.as_deref()),
                Spec::TransposeConv(spec) => spec.pack_weights(filter, bias.as_deref()),
                _ => return None,
            }),
            Weights::Integers { filter, channels } => bytes(match self {
                Spec::Conv2D(spec) => spec.pack_integers(filter, channels),
                Spec::DepthwiseConv2D(spec) => spec.pack_integers(filter, channels),
                Spec::FullyConnected(spec) => spec.pack_integers(filter, channels),
                Spec::TransposeConv(spec) => spec.pack_integers(filter, channels),
                _ => return None,
            }),
        })
    }
}

/// Values and the steps that compute them, in an order in which they can run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph<'a> {
    pub values: Vec<Value<'a>>,
    pub steps: Vec<Step<'a>>,
    /// Values uploaded before each run.
    pub inputs: Vec<ValueId>,
    /// Values read back after each run: those of the partition's outputs, then the new values of [`Graph::states`].
    pub outputs: Vec<ValueId>,
    /// Which inputs are variables that get a new value.
    pub states: Vec<usize>,
}

/// Who touches the memory of each value. Views count for the value that they look into.
pub(crate) struct Uses {
    /// Per value, the steps that write it, ascending.
    pub writers: Vec<Vec<usize>>,
    /// Per value, the steps that read it, ascending; a step that reads it twice is there twice.
    pub readers: Vec<Vec<usize>>,
    /// Per value, whether the outside writes or reads it.
    pub pinned: Vec<bool>,
}

impl<'a> Graph<'a> {
    /// Adds a value.
    pub(crate) fn add(&mut self, value: Value<'a>) -> ValueId {
        self.values.push(value);
        ValueId(self.values.len() - 1)
    }

    /// The value `id`.
    pub(crate) fn value(&self, id: ValueId) -> &Value<'a> {
        &self.values[id.0]
    }

    /// The value that owns the memory of `id`, and where in it `id` begins, in bytes.
    pub(crate) fn root(&self, mut id: ValueId) -> (ValueId, u64) {
        let mut at = 0;
        while let Source::View { of, offset } = self.value(id).source {
            (id, at) = (of, at + offset);
        }
        (id, at)
    }

    /// The value whose whole memory `id` is, under whatever shape.
    pub(crate) fn whole(&self, id: ValueId) -> Option<ValueId> {
        let (root, _) = self.root(id);
        (self.value(root).bytes() == self.value(id).bytes()).then_some(root)
    }

    /// Who touches what.
    pub(crate) fn uses(&self) -> Uses {
        let count = self.values.len();
        let mut uses =
            Uses { writers: vec![vec![]; count], readers: vec![vec![]; count], pinned: vec![false; count] };
        for id in self.inputs.iter().chain(&self.outputs) {
            uses.pinned[self.root(*id).0.0] = true;
        }
        for (i, step) in self.steps.iter().enumerate() {
            for id in step.reads() {
                uses.readers[self.root(id).0.0].push(i);
            }
            uses.writers[self.root(step.output).0.0].push(i);
        }
        uses
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Graphs for the tests of passes and planner.

    use super::*;

    /// Adds a value that steps write.
    pub(crate) fn value(graph: &mut Graph<'_>, shape: &[u32]) -> ValueId {
        graph.add(Value::new(shape, Element::F32, Source::Steps))
    }

    /// Adds an input of the graph.
    pub(crate) fn input(graph: &mut Graph<'_>, shape: &[u32]) -> ValueId {
        let id = graph.add(Value::new(shape, Element::F32, Source::Input));
        graph.inputs.push(id);
        id
    }

    /// Adds a constant of zeros.
    pub(crate) fn constant(graph: &mut Graph<'_>, shape: &[u32]) -> ValueId {
        let elements: u32 = shape.iter().product();
        let source = Source::Constant(vec![0; elements as usize * 4].into());
        graph.add(Value::new(shape, Element::F32, source))
    }

    /// Adds another look at a whole value.
    pub(crate) fn view(graph: &mut Graph<'_>, of: ValueId, shape: &[u32]) -> ValueId {
        let source = Source::View { of, offset: 0 };
        graph.add(Value::new(shape, Element::F32, source))
    }

    /// Adds a step; its node has the number of the step.
    pub(crate) fn step(graph: &mut Graph<'_>, spec: impl Into<Spec>, inputs: &[ValueId], output: ValueId) {
        let nodes = vec![NodeId(graph.steps.len())];
        let (weights, residual, slope) = (None, None, None);
        let inputs = inputs.to_vec();
        graph.steps.push(Step { spec: spec.into(), inputs, weights, residual, slope, output, nodes });
    }
}
