//! Variants of a shader. A device compiles a variant once and dispatches it with many uniforms.

use std::fmt;
use std::sync::Arc;

use crate::template::Template;
use crate::{Binding, Features, ShaderError};

/// Identifies a [`Variant`]: the family of the shader with the values that specialize it.
///
/// Equal keys mean equal sources, entry points and features, and bindings with equal [access](Binding::access).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VariantKey(Arc<str>);

impl VariantKey {
    /// Returns the key as text, such as `cast:CONVERSION=value,FOLDED=1,…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for VariantKey {
    fn from(key: String) -> Self {
        Self(key.into())
    }
}

impl fmt::Display for VariantKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A specialized shader: everything that a pipeline is compiled from.
///
/// Shapes, strides and bounds are uniforms and not part of the variant. [`Variant::source`] renders the WGSL text; the
/// key is known without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Shader family, such as `conv_2d`.
    pub name: &'static str,
    /// Identifies the pipeline.
    pub key: VariantKey,
    /// Entry point.
    pub entry: &'static str,
    /// Bindings of group 0, in order of their binding numbers.
    pub bindings: Vec<Binding>,
    /// Language features that the source uses beyond plain WGSL.
    pub features: Features,
    source: Source,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Template(Template),
    Text(Arc<str>),
}

impl Variant {
    pub(crate) fn new(name: &'static str, template: Template, bindings: Vec<Binding>) -> Self {
        Self {
            name,
            key: template.key().into(),
            entry: "main",
            bindings,
            features: Features::default(),
            source: Source::Template(template),
        }
    }

    pub(crate) fn with_features(self, features: Features) -> Self {
        Self { features, ..self }
    }

    /// Creates a variant whose source is given as text. `key` must identify the text.
    pub fn from_text(
        name: &'static str,
        key: impl Into<VariantKey>,
        text: impl Into<Arc<str>>,
        bindings: Vec<Binding>,
        features: Features,
    ) -> Self {
        Self { name, key: key.into(), entry: "main", bindings, features, source: Source::Text(text.into()) }
    }

    /// Returns the WGSL source.
    ///
    /// # Errors
    /// [`ShaderError::Template`] for a template that does not render, which is a defect of this crate.
    pub fn source(&self) -> Result<Arc<str>, ShaderError> {
        match &self.source {
            Source::Template(template) => template.render().map(Into::into),
            Source::Text(text) => Ok(Arc::clone(text)),
        }
    }
}

impl Template {
    /// Returns the variant of the shader family `name`. `UNIFORM` becomes the binding number of the uniform block.
    pub(crate) fn variant(self, name: &'static str, bindings: impl IntoIterator<Item = Binding>) -> Variant {
        let bindings: Vec<Binding> = bindings.into_iter().collect();
        let uniform = (0..).zip(&bindings).find(|(_, binding)| **binding == Binding::Uniform);
        Variant::new(name, self.number("UNIFORM", uniform.map_or(0, |(number, _)| number)), bindings)
    }
}
