//! What can go wrong between figures and a picture.

use std::fmt;

use ttf_parser::FaceParsingError;

/// Why there is no chart. Neither happens to a program that was built and tested.
#[derive(Debug)]
pub(crate) enum ChartError {
    /// The embedded font is not one.
    Font(FaceParsingError),
    /// The image could not be made.
    Image(String),
}

impl fmt::Display for ChartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Font(error) => write!(
                f,
                "cannot draw the chart: the embedded font is broken: {error}"
            ),
            Self::Image(error) => write!(
                f,
                "cannot draw the chart as PNG: {error}; --no-chart goes without"
            ),
        }
    }
}

impl std::error::Error for ChartError {}

impl From<FaceParsingError> for ChartError {
    fn from(error: FaceParsingError) -> Self {
        Self::Font(error)
    }
}
