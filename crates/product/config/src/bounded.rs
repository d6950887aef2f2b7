//! Numbers of the configuration and of the command line that have bounds of their own.

/// How a number within `$bounds` that wraps a `usize` is read; the error says `{min}`, `{max}` and `{number}`.
macro_rules! bounded {
    ($name:ident, $bounds:expr, $error:literal) => {
        impl TryFrom<usize> for $name {
            type Error = String;

            fn try_from(number: usize) -> Result<Self, String> {
                let bounds = $bounds;
                match bounds.contains(&number) {
                    true => Ok(Self(number)),
                    false => Err(format!($error, min = bounds.start(), max = bounds.end(), number = number)),
                }
            }
        }

        impl From<$name> for usize {
            fn from(bounded: $name) -> Self {
                bounded.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                text.parse::<usize>().map_err(|error| error.to_string())?.try_into()
            }
        }
    };
}

pub(crate) use bounded;
