# SPDX-License-Identifier: Apache-2.0
"""Classifiers of quality, domain, kind of content and educational value, by the names that NeMo Curator gives them."""

from __future__ import annotations

from thresher.core.arguments.options import check_count
from thresher.errors import UsageError
from thresher.stages.text.classifiers.classifier import Classifier, LabelClassifier
from thresher.stages.text.classifiers.outputs import Grade, Outputs
from thresher.stages.text.models.composite import model_stage
from thresher.stages.text.models.tokenize import Tokenize


@model_stage
class QualityClassifier(LabelClassifier):
    """Label the quality of English texts: High, Medium or Low."""

    model: str = "nvidia/quality-classifier-deberta"
    label_field: str = "quality_pred"
    max_chars: int | None = 6000
    max_length: int | None = 1024


@model_stage
class DomainClassifier(LabelClassifier):
    """Label the domain of English texts, such as Finance or Health: one of 26."""

    model: str = "nvidia/domain-classifier"
    label_field: str = "domain_pred"
    max_chars: int | None = 2000
    max_length: int | None = 512


@model_stage
class MultilingualDomainClassifier(LabelClassifier):
    """Label the domain of texts in 52 languages: one of 26."""

    model: str = "nvidia/multilingual-domain-classifier"
    label_field: str = "multilingual_domain_pred"
    max_chars: int | None = 2000
    max_length: int | None = 512


@model_stage
class ContentTypeClassifier(LabelClassifier):
    """Label what kind of text it is, such as Blogs, News or Reviews: one of 11."""

    model: str = "nvidia/content-type-classifier-deberta"
    label_field: str = "content_pred"
    max_chars: int | None = 6000
    max_length: int | None = 1024


@model_stage
class GradeClassifier(Classifier):
    """Grade texts with a number, and label those from 2.5 on as high_quality, others as low_quality."""

    field_docs = """`label_field`, `float_field`, `int_field`: columns for the label, the grade, and the grade as a
        whole number from 0 to 5."""

    label_field: str
    float_field: str
    int_field: str
    max_length: int | None = 512

    def outputs_of_model(self) -> Outputs:
        """Return the grade."""
        return Grade(self.float_field, self.int_field, self.label_field)


@model_stage
class FineWebEduClassifier(GradeClassifier):
    """Grade the educational value of texts from 0 to 5, as FineWeb-Edu was made."""

    model: str = "HuggingFaceFW/fineweb-edu-classifier"
    label_field: str = "fineweb-edu-score-label"
    float_field: str = "fineweb-edu-score-float"
    int_field: str = "fineweb-edu-score-int"


@model_stage
class FineWebMixtralEduClassifier(GradeClassifier):
    """Grade the educational value of texts, as annotated by Mixtral 8x22B."""

    model: str = "nvidia/nemocurator-fineweb-mixtral-edu-classifier"
    label_field: str = "fineweb-mixtral-edu-score-label"
    float_field: str = "fineweb-mixtral-edu-score-float"
    int_field: str = "fineweb-mixtral-edu-score-int"
    model_inference_batch_size: int = 1024


@model_stage
class FineWebNemotronEduClassifier(GradeClassifier):
    """Grade the educational value of texts, as annotated by Nemotron-4-340B."""

    model: str = "nvidia/nemocurator-fineweb-nemotron-4-edu-classifier"
    label_field: str = "fineweb-nemotron-edu-score-label"
    float_field: str = "fineweb-nemotron-edu-score-float"
    int_field: str = "fineweb-nemotron-edu-score-int"
    model_inference_batch_size: int = 1024


@model_stage
class FineMathClassifier(Classifier):
    """Grade the mathematical value of texts from 0 to 5, by their middle 10,000 characters."""

    field_docs = """`float_field`, `int_field`: columns for the grade, and the grade as a whole number from 0 to 5.
        `center_crop_chars`: use so many characters in the middle of a text; null: those that `max_chars` says."""

    model: str = "HuggingFaceTB/finemath-classifier"
    float_field: str = "finemath_scores"
    int_field: str = "finemath_int_scores"
    max_length: int | None = 512
    model_inference_batch_size: int = 1024
    center_crop_chars: int | None = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.center_crop_chars is not None:
            check_count("FineMathClassifier.center_crop_chars", self.center_crop_chars)
            if self.max_chars is not None:
                raise UsageError("FineMathClassifier: give max_chars or center_crop_chars, and None for the other")

    def outputs_of_model(self) -> Outputs:
        """Return the grade."""
        return Grade(self.float_field, self.int_field)

    def tokenizer(self) -> Tokenize:
        """Return the stage that makes the ids of the middle of a text."""
        made = super().tokenizer()
        if self.center_crop_chars is not None:
            made.max_chars, made.crop = self.center_crop_chars, "center"
        return made
