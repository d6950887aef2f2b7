//! Converts results of the client library into answers of the checker.

use crate::checker::model::Answer;
use nicekv_client::{Answer as Told, OperationError, Outcome};
use nicekv_proto::Status;

pub(crate) fn answer(told: &Told<'_>) -> Answer {
    let status = match told.outcome {
        Outcome::Done => Status::Ok,
        Outcome::NotFound => Status::NotFound,
        Outcome::ConditionFailed => Status::ConditionFailed,
    };
    let value = told.value.map(<[u8]>::to_vec);
    Answer { status, version: told.version, integer: told.integer, value, form: told.form }
}

/// The refusal that an error stands for, or `None` if the outcome of the call is unknown. Panics
/// for errors that cannot occur here.
pub(crate) fn not_applied(error: OperationError) -> Option<Status> {
    match error {
        // For `OldValueGone` the op was applied, but the checker cannot use an answer without the
        // old value.
        OperationError::OutcomeUnknown | OperationError::TimedOut | OperationError::OldValueGone => None,
        OperationError::NotAnInteger => Some(Status::NotAnInteger),
        OperationError::Overflow => Some(Status::Overflow),
        OperationError::ResultTooLong { .. } => Some(Status::ValueTooLong),
        OperationError::Busy => Some(Status::Busy),
        OperationError::DiskFull => Some(Status::DiskFull),
        OperationError::StaleStamp => Some(Status::StaleStamp),
        OperationError::EndedByStore => Some(Status::EndedByStore),
        OperationError::CrossPartition => Some(Status::CrossPartition),
        OperationError::WrongType => Some(Status::WrongType),
        error @ (OperationError::NotAFloat
        | OperationError::NoSuchKeyspace
        | OperationError::TooManyListeners) => {
            panic!("no node sends this error here: {error}")
        }
    }
}
