//! Conversion between params and the options tables of the format.
//!
//! An op's params are declared once, with [`options!`](super::options): the macro derives the struct, reading and
//! writing. A field that a file lacks takes the format's default, which preserves the meaning of old files.

use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, Vector, WIPOffset};

use super::value::FieldKind;
use super::{Params, ReadError, TensorType, WrongParams};
use crate::error::Error;
use crate::schema::{self, BuiltinOptions, BuiltinOptions2};

/// The member of the format's two options unions that holds the options of an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionsType {
    /// The op has no options table.
    None,
    /// A member of the first union.
    First(BuiltinOptions),
    /// A member of the second union, which newer ops use.
    Second(BuiltinOptions2),
}

impl std::fmt::Display for OptionsType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, code) = match self {
            OptionsType::None => return f.write_str("no options"),
            OptionsType::First(ty) => (ty.variant_name(), ty.0),
            OptionsType::Second(ty) => (ty.variant_name(), ty.0),
        };
        match name {
            Some(name) => f.write_str(name),
            None => write!(f, "the unknown options type {code}"),
        }
    }
}

/// A param of an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldInfo {
    /// The name in the schema.
    pub name: &'static str,
    /// The first version of the op that has the param. Kernels of older versions behave as if it had its default.
    pub since: u32,
    /// The representation of its values.
    pub kind: FieldKind,
}

/// The storage of an op's params in a file.
#[derive(Clone, Copy)]
pub struct Codec {
    pub(crate) ty: OptionsType,
    /// The params, in the order of the members of `c_struct`.
    pub fields: &'static [FieldInfo],
    /// The structure of LiteRT's C interface (`builtin_op_data.h`) that holds the params; `None` if there is none, or
    /// if delegates do not see nodes of the op.
    pub c_struct: Option<&'static str>,
    pub(super) read: fn(&Options<'_>) -> Result<Params, ReadError>,
    pub(super) write: for<'f> fn(&Params, &mut Builder<'f>) -> Result<Table, WrongParams>,
}

/// The buffer that options are written into.
pub(crate) type Builder<'f> = FlatBufferBuilder<'f>;
/// A table that was written.
pub(crate) type Table = WIPOffset<UnionWIPOffset>;

impl Codec {
    /// The op has no options table.
    pub(crate) const NONE: Codec = Codec::without_fields(OptionsType::None);

    /// The op has an options table without fields.
    pub(crate) const fn empty(ty: BuiltinOptions) -> Codec {
        Codec::without_fields(OptionsType::First(ty))
    }

    /// The op has an options table without fields, in the second union.
    #[allow(dead_code)]
    pub(crate) const fn empty_second(ty: BuiltinOptions2) -> Codec {
        Codec::without_fields(OptionsType::Second(ty))
    }

    const fn without_fields(ty: OptionsType) -> Codec {
        Codec { ty, fields: &[], c_struct: None, read: |_| Ok(Params::None), write: write_empty }
    }

    /// Returns the name of the options table in the schema: `Conv2DOptions`; `None` if the op has no options table.
    pub fn options_table(&self) -> Option<&'static str> {
        match self.ty {
            OptionsType::None => None,
            OptionsType::First(ty) => ty.variant_name(),
            OptionsType::Second(ty) => ty.variant_name(),
        }
    }

    /// Returns the params of an operator without options.
    ///
    /// # Errors
    /// If a default of the schema is invalid. A test checks that the defaults of every op are valid.
    pub fn defaults(&self) -> crate::error::Result<Params> {
        let params = defaults().and_then(|operator| (self.read)(&Options(operator)));
        params.map_err(|error| Error::InvalidNode(error.to_string()))
    }

    /// Returns the params of an operator.
    pub(crate) fn read(&self, operator: schema::Operator<'_>) -> Result<Params, ReadError> {
        let (first, second) = (operator.builtin_options_type(), operator.builtin_options_2_type());
        let found = match (first, second) {
            (BuiltinOptions::NONE, BuiltinOptions2::NONE) => OptionsType::None,
            (first, BuiltinOptions2::NONE) => OptionsType::First(first),
            (BuiltinOptions::NONE, second) => OptionsType::Second(second),
            (first, second) => {
                let found = format!("{} and {}", OptionsType::First(first), OptionsType::Second(second));
                return Err(ReadError::WrongOptions { wanted: self.ty, found });
            }
        };
        if found != self.ty && found != OptionsType::None {
            return Err(ReadError::WrongOptions { wanted: self.ty, found: found.to_string() });
        }
        (self.read)(&Options(operator))
    }

    /// Writes params. Returns the member of the options unions, and the table if the op has one.
    pub(crate) fn write(
        &self,
        params: &Params,
        builder: &mut Builder<'_>,
    ) -> Result<(OptionsType, Option<Table>), WrongParams> {
        match self.ty {
            OptionsType::None => match params {
                Params::None => Ok((self.ty, None)),
                _ => Err(WrongParams { wanted: "None" }),
            },
            _ => Ok((self.ty, Some((self.write)(params, builder)?))),
        }
    }
}

fn write_empty(params: &Params, builder: &mut Builder<'_>) -> Result<Table, WrongParams> {
    if *params != Params::None {
        return Err(WrongParams { wanted: "None" });
    }
    let start = builder.start_table();
    Ok(WIPOffset::new(builder.end_table(start).value()))
}

/// The options of one operator, in FlatBuffer form. Only this module and the code of `options!` use it.
pub(crate) struct Options<'a>(schema::Operator<'a>);

/// A FlatBuffer whose root is a table without fields: every accessor returns its default.
static EMPTY_TABLE: [u8; 12] = [8, 0, 0, 0, 4, 0, 4, 0, 4, 0, 0, 0];

impl<'a> Options<'a> {
    /// Returns the options table that `get` selects; all defaults where the node has no options.
    pub(super) fn table<T>(&self, get: impl Fn(&schema::Operator<'a>) -> Option<T>) -> Result<T, ReadError>
    where
        T: flatbuffers::Follow<'a, Inner = T> + flatbuffers::Verifiable + 'a,
    {
        match get(&self.0) {
            Some(table) => Ok(table),
            None => defaults(),
        }
    }
}

/// Returns a table that lacks every field.
pub(super) fn defaults<'a, T>() -> Result<T, ReadError>
where
    T: flatbuffers::Follow<'a, Inner = T> + flatbuffers::Verifiable + 'a,
{
    flatbuffers::root::<T>(&EMPTY_TABLE).map_err(|e| ReadError::Damaged(e.to_string()))
}

/// A field's value in the form that params hold.
pub(super) trait Value: Sized {
    /// The type that the generated accessor returns.
    type Stored<'a>;
    /// The type that the generated builder takes.
    type Arg<'f>;
    fn read(stored: Self::Stored<'_>, field: &'static str) -> Result<Self, ReadError>;
    fn write<'f>(&self, builder: &mut Builder<'f>) -> Self::Arg<'f>;
}

macro_rules! plain {
    ($($ty:ty),+) => {$(
        impl Value for $ty {
            type Stored<'a> = $ty;
            type Arg<'f> = $ty;
            fn read(stored: $ty, _: &'static str) -> Result<Self, ReadError> {
                Ok(stored)
            }
            fn write<'f>(&self, _: &mut Builder<'f>) -> $ty {
                *self
            }
        }
    )+};
}
plain!(bool, i32, i64, u32, f32);

/// A list that is absent reads as an empty one. The list is always written, because some readers reject an absent one.
macro_rules! lists {
    ($($ty:ty),+) => {$(
        impl Value for Vec<$ty> {
            type Stored<'a> = Option<Vector<'a, $ty>>;
            type Arg<'f> = Option<WIPOffset<Vector<'f, $ty>>>;
            fn read(stored: Self::Stored<'_>, _: &'static str) -> Result<Self, ReadError> {
                Ok(stored.map(|list| list.iter().collect()).unwrap_or_default())
            }
            fn write<'f>(&self, builder: &mut Builder<'f>) -> Self::Arg<'f> {
                Some(builder.create_vector(self))
            }
        }
    )+};
}
lists!(bool, i32, i64, f32);

/// The attributes of a composite: written even if empty, because other runtimes reject a composite without them.
impl Value for Vec<u8> {
    type Stored<'a> = Option<Vector<'a, u8>>;
    type Arg<'f> = Option<WIPOffset<Vector<'f, u8>>>;
    fn read(stored: Self::Stored<'_>, _: &'static str) -> Result<Self, ReadError> {
        Ok(stored.map(|list| list.bytes().to_vec()).unwrap_or_default())
    }
    fn write<'f>(&self, builder: &mut Builder<'f>) -> Self::Arg<'f> {
        Some(builder.create_vector(self))
    }
}

impl Value for String {
    type Stored<'a> = Option<&'a str>;
    type Arg<'f> = Option<WIPOffset<&'f str>>;
    fn read(stored: Option<&str>, _: &'static str) -> Result<Self, ReadError> {
        Ok(stored.unwrap_or_default().to_owned())
    }
    fn write<'f>(&self, builder: &mut Builder<'f>) -> Self::Arg<'f> {
        (!self.is_empty()).then(|| builder.create_string(self))
    }
}

impl Value for TensorType {
    type Stored<'a> = schema::TensorType;
    type Arg<'f> = schema::TensorType;
    fn read(stored: schema::TensorType, field: &'static str) -> Result<Self, ReadError> {
        TensorType::from_schema(stored).ok_or(ReadError::UnknownValue { field, value: stored.0.into() })
    }
    fn write<'f>(&self, _: &mut Builder<'f>) -> schema::TensorType {
        schema::TensorType(*self as i8)
    }
}

/// Declares enums of the format as Rust enums with the same values.
macro_rules! enums {
    ($($(#[$doc:meta])* $name:ident from $schema:ident { $($(#[$vdoc:meta])* $variant:ident = $member:ident),+ $(,)? })*) => {
        $($(#[$doc])*
        #[allow(missing_docs)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }
        impl $crate::ops::codec::Value for $name {
            type Stored<'a> = $crate::schema::$schema;
            type Arg<'f> = $crate::schema::$schema;
            fn read(stored: Self::Stored<'_>, field: &'static str) -> Result<Self, $crate::ops::ReadError> {
                match stored {
                    $($crate::schema::$schema::$member => Ok($name::$variant),)+
                    other => Err($crate::ops::ReadError::UnknownValue { field, value: other.0.into() }),
                }
            }
            fn write<'f>(&self, _: &mut $crate::ops::codec::Builder<'f>) -> Self::Arg<'f> {
                match self { $($name::$variant => $crate::schema::$schema::$member),+ }
            }
        }
        impl $crate::ops::codec::EnumList for $name {
            type Code = $crate::schema::$schema;
        }
        impl $crate::ops::value::EnumValue for $name {
            const NAME: &'static str = stringify!($name);
            fn code_and_name(self) -> (i64, &'static str) {
                match self {
                    $($name::$variant => ($crate::schema::$schema::$member.0.into(), stringify!($member)),)+
                }
            }
        }
        impl $crate::ops::value::Described for $name {
            const KIND: $crate::ops::FieldKind = $crate::ops::FieldKind::Enum(stringify!($name));
            fn describe(&self) -> $crate::ops::value::ParamValue<'_> {
                let (code, name) = $crate::ops::value::EnumValue::code_and_name(*self);
                $crate::ops::value::ParamValue::Enum(code, name)
            }
            fn parse(value: &$crate::ops::value::ParamValue<'_>) -> Option<Self> {
                let code = value.as_i64()?;
                [$($name::$variant),+].into_iter().find(|v| {
                    $crate::ops::value::EnumValue::code_and_name(*v).0 == code
                })
            }
        })*
    };
}
pub(crate) use enums;

/// An enum of which a field may hold a list.
pub(super) trait EnumList: Value {
    type Code;
}

impl<E> Value for Vec<E>
where
    E: EnumList + for<'a> Value<Stored<'a> = <E as EnumList>::Code, Arg<'a> = <E as EnumList>::Code>,
    E::Code: for<'a> flatbuffers::Follow<'a, Inner = E::Code>
        + flatbuffers::Push<Output = E::Code>
        + Copy
        + 'static,
{
    type Stored<'a> = Option<Vector<'a, E::Code>>;
    type Arg<'f> = Option<WIPOffset<Vector<'f, E::Code>>>;
    fn read(stored: Self::Stored<'_>, field: &'static str) -> Result<Self, ReadError> {
        stored.map(|list| list.iter().map(|code| E::read(code, field)).collect()).unwrap_or(Ok(Vec::new()))
    }
    fn write<'f>(&self, builder: &mut Builder<'f>) -> Self::Arg<'f> {
        let codes: Vec<E::Code> = self.iter().map(|value| value.write(builder)).collect();
        Some(builder.create_vector(&codes))
    }
}

/// Declares the params of an op, with reading and writing.
///
/// `since N` after a field's type names the first version of the op that has the field; without it, every version has
/// it. The header names the variant of [`Params`](super::Params), the struct, the union and its member with the
/// generated accessor and arguments, and `as TfLite…Params` the structure of LiteRT's C interface. The fields are in
/// the order of that structure, whose layout follows from it: a new field comes last, with the version that has it.
macro_rules! options {
    ($(#[$doc:meta])* $variant:ident($params:ident) in $union:ident::$member:ident($get:ident, $args:ident)
        $(as $c_struct:ident)? {
        $($(#[$field_doc:meta])* $field:ident: $ty:ty $(, since $since:literal)?;)*
    }) => {
        $(#[$doc])*
        ///
        /// Built from [`Default`], the params of a file without the fields, with a setter per field.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub struct $params {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl $params {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](field@Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $ty) -> Self {
                    self.$field = $field;
                    self
                }
            )*

            /// The storage of the params.
            pub(crate) const CODEC: $crate::ops::codec::Codec = $crate::ops::codec::Codec {
                ty: $crate::ops::codec::options!(@union $union)($crate::schema::$union::$member),
                fields: &[$($crate::ops::codec::FieldInfo {
                    name: stringify!($field),
                    since: $crate::ops::codec::options!(@since $($since)?),
                    kind: <$ty as $crate::ops::value::Described>::KIND,
                }),*],
                c_struct: $crate::ops::codec::options!(@c $($c_struct)?),
                read: |options| {
                    Self::from_table(options.table(|o| o.$get())?).map($crate::ops::Params::from)
                },
                write: |params, builder| {
                    let params: &$params = params.try_into()?;
                    // For tables with fields that no version of the op uses.
                    #[allow(clippy::needless_update)]
                    let args = $crate::schema::$args {
                        $($field: $crate::ops::codec::Value::write(&params.$field, builder),)*
                        ..Default::default()
                    };
                    Ok($crate::schema::$member::create(builder, &args).as_union_value())
                },
            };

            fn from_table(table: $crate::schema::$member<'_>) -> Result<Self, $crate::ops::ReadError> {
                Ok($params {
                    $($field: $crate::ops::codec::Value::read(
                        table.$field(),
                        concat!(stringify!($member), ".", stringify!($field)),
                    )?,)*
                })
            }
        }

        impl $crate::ops::value::Named for $params {
            fn get(&self, name: &str) -> Option<$crate::ops::ParamValue<'_>> {
                match name {
                    $(stringify!($field) => Some($crate::ops::value::Described::describe(&self.$field)),)*
                    _ => None,
                }
            }
            fn set(&mut self, name: &str, value: &$crate::ops::ParamValue<'_>) -> Option<()> {
                match name {
                    $(stringify!($field) => self.$field = $crate::ops::value::Described::parse(value)?,)*
                    _ => return None,
                }
                Some(())
            }
        }

        impl From<$params> for $crate::ops::Params {
            // Some are boxed.
            #[allow(clippy::useless_conversion)]
            fn from(params: $params) -> Self {
                $crate::ops::Params::$variant(params.into())
            }
        }

        impl Default for $params {
            /// The params of a file without the fields.
            #[allow(clippy::expect_used)]
            fn default() -> Self {
                let table = $crate::ops::codec::defaults();
                table.and_then(Self::from_table).expect("the format's own defaults are valid")
            }
        }
    };
    (@c) => { None };
    (@c $c_struct:ident) => { Some(stringify!($c_struct)) };
    (@since) => { 1 };
    (@since $since:literal) => { $since };
    (@union BuiltinOptions) => { $crate::ops::codec::OptionsType::First };
    (@union BuiltinOptions2) => { $crate::ops::codec::OptionsType::Second };
}
pub(crate) use options;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{DEFS, definition};
    use crate::schema::{Operator, OperatorArgs};

    /// An operator with the options that `write` returns.
    fn operator(write: impl FnOnce(&mut Builder<'_>) -> (OptionsType, Option<Table>)) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let mut args = OperatorArgs::default();
        match write(&mut builder) {
            (OptionsType::None, _) => {}
            (OptionsType::First(ty), table) => {
                (args.builtin_options_type, args.builtin_options) = (ty, table);
            }
            (OptionsType::Second(ty), table) => {
                (args.builtin_options_2_type, args.builtin_options_2) = (ty, table);
            }
        }
        let root = Operator::create(&mut builder, &args);
        builder.finish_minimal(root);
        builder.finished_data().to_vec()
    }

    fn read(codec: &Codec, bytes: &[u8]) -> Result<Params, ReadError> {
        codec.read(flatbuffers::root::<Operator<'_>>(bytes).unwrap())
    }

    #[test]
    fn every_op_reads_what_it_writes() {
        for def in DEFS {
            let defaults = read(&def.codec, &operator(|_| (OptionsType::None, None))).unwrap();
            let written = operator(|builder| def.codec.write(&defaults, builder).unwrap());
            assert_eq!(read(&def.codec, &written).unwrap(), defaults, "{def:?}");
        }
    }

    #[test]
    fn every_field_exists_since_a_version_that_exists() {
        for def in DEFS {
            for field in def.codec.fields {
                // An op that no release runs still has one version.
                let latest = def.history.last().map_or(1, |(version, _)| *version);
                assert!(latest >= field.since, "{def:?} {}", field.name);
            }
        }
    }

    #[test]
    fn options_of_another_op_are_refused() {
        let add = &definition(crate::types::op::BuiltinOp::ADD).unwrap().codec;
        let sub = &definition(crate::types::op::BuiltinOp::SUB).unwrap().codec;
        let defaults = read(sub, &operator(|_| (OptionsType::None, None))).unwrap();
        let written = operator(|builder| sub.write(&defaults, builder).unwrap());
        let error = read(add, &written).unwrap_err();
        assert_eq!(error.to_string(), "it has SubOptions, but its op needs AddOptions");
        assert!(add.write(&defaults, &mut FlatBufferBuilder::new()).is_err());
    }
}
