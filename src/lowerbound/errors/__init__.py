"""What went wrong: expected, found, where, what to do. Every error and warning of the library.

In: the plain data of one failure. Out: an exception or a warning that builds its text from them,
so that each text lives in one place. All errors are `LowerboundError`, which is a `ValueError`;
an argument that cannot be used as it is, data or setting, is an `ArgumentError`.

| module | what went wrong |
|---|---|
| `roots` | anything at all, and arguments: what to catch |
| `unusable_data` | the data handed to a model |
| `rows` | rows that are read a batch at a time |
| `documents` | documents of words: their counts, vocabulary, files |
| `surface.formulation` | formulas, and the columns that they name |
| `surface.invocation` | the command line |
| `requests` | what was asked for cannot be had |
| `programs` | what the NumPyro program says |
| `derivation` | log p is no function of statistics, or no certified one |
| `breakdown` | a bound falls or is not finite; no start, mode or mass is found |
| `doubts` | a fit is not what was planned, cannot be judged, or not be trusted |
| `remedies` | a fit cannot be corrected, or not well |
| `studies` | fits that cannot be compared, or programs that cannot be calibrated |
| `resources` | the machine lacks memory, time or a kernel |
| `storage` | files that the library writes and reads back |

`wording` says how names, counts and places are written. Nothing here imports the rest of the
library.

`coin` is the program in the example of `lb.fit`.

>>> try:
...     lb.fit(coin, np.array([1, 0, 2]))
... except lb.errors.SupportError as error:
...     print(error)
Site 'y' (argument 'y') observes impossible values: y[2] = 2, 1 such entry   (...).
Expected values in the support of BernoulliProbs: 0 or 1. Correct the data, mask these entries, ...
"""

from lowerbound.errors.breakdown import (
    BoundReachedError,
    CutCountsError,
    DecreasingBoundError,
    DecreasingBoundWarning,
    IllConditionedError,
    ImpossibleDataError,
    ImproperFactorError,
    ImproperPosteriorError,
    InfiniteBoundError,
    LostPosteriorError,
    NoFiniteBoundError,
    NoFiniteStartError,
    NoModeError,
    PoorIntegralError,
    ZeroDensityError,
)
from lowerbound.errors.derivation import (
    BlockError,
    CertificateError,
    NotConjugateError,
    Residual,
    UncertifiedError,
)
from lowerbound.errors.documents.corpora import (
    CorpusError,
    CorpusTypeError,
    CountError,
    EmptyDocumentsWarning,
    UnknownWordsWarning,
)
from lowerbound.errors.documents.corpus_files import CorpusFileError
from lowerbound.errors.documents.vocabularies import VocabularyError
from lowerbound.errors.doubts import (
    ConvergenceWarning,
    LadderWarning,
    NotIdentifiedWarning,
    ReadBeyondWarning,
    TrustWarning,
    UnjudgedError,
)
from lowerbound.errors.programs import (
    DiscreteSiteError,
    DuplicateSiteError,
    LongSumError,
    NoCoordinatesError,
    NoDrawsError,
    NoLatentSiteError,
    NoMarginalError,
    NoObservedSiteError,
    ParameterSiteError,
    ShapeError,
    SubsampledPlateError,
    UncompiledCheckError,
    UnsteadyProgramError,
    UnsupportedModelError,
)
from lowerbound.errors.remedies import (
    CorrectionWarning,
    FewWeightsError,
    FlatDirectionError,
    NoDensityError,
    NotAtOptimumError,
    UncorrectableError,
)
from lowerbound.errors.requests import (
    AugmentationError,
    ChosenSitesError,
    NoPredictorsError,
    NoStructureError,
    NotAFitError,
    NotFittedError,
    NotSpreadError,
    ReservedNameError,
    SettingError,
    UnableError,
    UnfittedModelError,
    UngrowingError,
    UnknownSiteError,
)
from lowerbound.errors.resources import (
    DevicesError,
    NativeKernelWarning,
    TooDenseError,
    TooLargeError,
    TooLongToCompileError,
    TooManySitesError,
    TooSlowError,
)
from lowerbound.errors.roots import ArgumentError, LowerboundError, LowerboundWarning
from lowerbound.errors.rows import (
    BatchSizeError,
    MinibatchError,
    PathError,
    RowError,
    StreamError,
)
from lowerbound.errors.storage import (
    MissingPackageError,
    NotPlainError,
    ResumeWarning,
    StorageError,
    UnkeptError,
)
from lowerbound.errors.studies import (
    DifferentDataError,
    FailedSimulationsError,
    NoRowsError,
    NotGenerativeError,
    NotRepeatableError,
)
from lowerbound.errors.surface.formulation import (
    ColumnKindError,
    DroppedRowsWarning,
    FormulaError,
    GroupLevelsError,
    MissingRowsError,
    NewLevelError,
    PriorError,
    ResponseError,
    UnknownColumnError,
)
from lowerbound.errors.surface.invocation import CommandError
from lowerbound.errors.unusable_data import (
    CodeRangeError,
    CodeTypeError,
    DataTypeError,
    EmptyDataError,
    ExcludedError,
    InfiniteDataError,
    MissingDataError,
    NaNDataError,
    NaNSlopeError,
    ParameterValueError,
    SupportError,
    TooManyComponentsError,
    UnusedDataError,
    ZeroVarianceError,
)

__all__ = [
    # roots
    "ArgumentError",
    "LowerboundError",
    "LowerboundWarning",
    # unusable_data
    "DataTypeError",
    "EmptyDataError",
    "ExcludedError",
    "InfiniteDataError",
    "MissingDataError",
    "NaNDataError",
    "NaNSlopeError",
    "ParameterValueError",
    "SupportError",
    "TooManyComponentsError",
    "UnusedDataError",
    "ZeroVarianceError",
    # rows
    "BatchSizeError",
    "MinibatchError",
    "PathError",
    "RowError",
    "StreamError",
    # corpora
    "CorpusError",
    "CorpusTypeError",
    "CountError",
    "EmptyDocumentsWarning",
    "UnknownWordsWarning",
    # vocabularies
    "VocabularyError",
    # corpus_files
    "CorpusFileError",
    # formulation
    "ColumnKindError",
    "DroppedRowsWarning",
    "FormulaError",
    "GroupLevelsError",
    "MissingRowsError",
    "NewLevelError",
    "PriorError",
    "ResponseError",
    "UnknownColumnError",
    # invocation
    "CommandError",
    # requests
    "AugmentationError",
    "ChosenSitesError",
    "NoStructureError",
    "NotFittedError",
    "NotAFitError",
    "NotSpreadError",
    "ReadBeyondWarning",
    "ReservedNameError",
    "SettingError",
    "UnableError",
    "UngrowingError",
    "UnfittedModelError",
    "NotIdentifiedWarning",
    "TrustWarning",
    "UnjudgedError",
    "UnknownSiteError",
    # programs
    "DiscreteSiteError",
    "DuplicateSiteError",
    "NoLatentSiteError",
    "NoCoordinatesError",
    "NoDrawsError",
    "NoMarginalError",
    "NoObservedSiteError",
    "ParameterSiteError",
    "PoorIntegralError",
    "ShapeError",
    "LongSumError",
    "SubsampledPlateError",
    "UncompiledCheckError",
    "UnsteadyProgramError",
    "UnsupportedModelError",
    # derivation
    "BlockError",
    "CertificateError",
    "NotConjugateError",
    "Residual",
    "UncertifiedError",
    # breakdown
    "BoundReachedError",
    "CutCountsError",
    "DecreasingBoundError",
    "DecreasingBoundWarning",
    "IllConditionedError",
    "ImproperFactorError",
    "ImproperPosteriorError",
    "InfiniteBoundError",
    "LostPosteriorError",
    "ImpossibleDataError",
    "NoFiniteBoundError",
    "NoFiniteStartError",
    "NoModeError",
    "NoPredictorsError",
    "ZeroDensityError",
    # convergence
    "CodeRangeError",
    "CodeTypeError",
    "ConvergenceWarning",
    "LadderWarning",
    # remedies
    "CorrectionWarning",
    "FewWeightsError",
    "FlatDirectionError",
    "NoDensityError",
    "NotAtOptimumError",
    "UncorrectableError",
    # studies
    "DifferentDataError",
    "FailedSimulationsError",
    "NotGenerativeError",
    "NoRowsError",
    "NotRepeatableError",
    # resources
    "DevicesError",
    "NativeKernelWarning",
    "TooDenseError",
    "TooLargeError",
    "TooLongToCompileError",
    "TooManySitesError",
    "TooSlowError",
    # storage
    "MissingPackageError",
    "NotPlainError",
    "ResumeWarning",
    "StorageError",
    "UnkeptError",
]
