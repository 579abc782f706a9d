"""The estimators that the test suite of skl2onnx builds with numbers or categories as input.

By the names of classes in its archive, version 1.20.0; arguments and data are our own, small.
Estimators of texts as sentences (CountVectorizer, TfidfVectorizer, FeatureHasher) are no tables,
and those whose converters the suite defines itself are not skl2onnx's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from skl2onnx.sklapi import (
    CastRegressor,
    CastTransformer,
    ReplaceTransformer,
    WOETransformer,
    register,
)
from sklearn import (
    calibration,
    cluster,
    compose,
    cross_decomposition,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    gaussian_process,
    impute,
    linear_model,
    mixture,
    model_selection,
    multiclass,
    multioutput,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    random_projection,
    svm,
    tree,
)
from sklearn.feature_extraction import text


@dataclass(frozen=True)
class Case:
    """An estimator, not fitted yet.

    Attributes:
        data: a name of data.DATA.
        variant: what tells it from other cases of its class.
        options: what its converter is told.
        ours: whether a converter of our own takes the place of skl2onnx's, which stops or errs.
    """

    estimator: Any
    data: str
    variant: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    ours: bool = False

    @property
    def name(self) -> str:
        return type(self.estimator).__name__

    def __str__(self) -> str:
        return "-".join(filter(None, (self.name, self.data, self.variant)))


def _logistic() -> Any:
    return linear_model.LogisticRegression(max_iter=500)


def _small_tree() -> Any:
    return tree.DecisionTreeClassifier(max_depth=3, random_state=0)


def _voters() -> list[tuple[str, Any]]:
    return [("a", _logistic()), ("b", _small_tree())]


def _small_regressor() -> Any:
    return tree.DecisionTreeRegressor(max_depth=3, random_state=0)


def _cases(data: str, *estimators: Any, ours: bool = False) -> list[Case]:
    return [Case(estimator, data, ours=ours) for estimator in estimators]


SEED = {"random_state": 0}
RAW = {"raw_scores": True}
KERNELS = gaussian_process.kernels

CLASSIFIERS = [
    *_cases(
        "classes",
        ensemble.AdaBoostClassifier(n_estimators=5, **SEED),
        ensemble.BaggingClassifier(n_estimators=3, **SEED),
        calibration.CalibratedClassifierCV(_logistic(), cv=2),
        tree.DecisionTreeClassifier(max_depth=4, **SEED),
        tree.ExtraTreeClassifier(max_depth=4, **SEED),
        ensemble.ExtraTreesClassifier(5, max_depth=4, **SEED),
        naive_bayes.GaussianNB(),
        ensemble.GradientBoostingClassifier(n_estimators=5, **SEED),
        model_selection.GridSearchCV(_logistic(), {"C": [0.5, 1.0]}, cv=2),
        discriminant_analysis.LinearDiscriminantAnalysis(),
        svm.LinearSVC(),
        _logistic(),
        linear_model.LogisticRegressionCV(Cs=3, cv=2, max_iter=500),
        neural_network.MLPClassifier((6,), **SEED),
        svm.NuSVC(),
        svm.NuSVC(probability=True),
        multiclass.OneVsOneClassifier(_logistic()),
        multiclass.OneVsRestClassifier(_logistic()),
        linear_model.PassiveAggressiveClassifier(**SEED),
        linear_model.Perceptron(**SEED),
        discriminant_analysis.QuadraticDiscriminantAnalysis(),
        ensemble.RandomForestClassifier(5, max_depth=4, **SEED),
        linear_model.RidgeClassifier(),
        linear_model.RidgeClassifierCV(),
        linear_model.SGDClassifier(**SEED),
        ensemble.StackingClassifier([("a", _logistic()), ("b", _small_tree())], cv=2),
        svm.SVC(),
        svm.SVC(probability=True, **SEED),
        ensemble.VotingClassifier(
            [("a", _logistic()), ("b", _small_tree())], flatten_transform=False
        ),
        ensemble.VotingClassifier(
            [("a", _logistic()), ("b", _small_tree())], voting="soft", flatten_transform=False
        ),
    ),
    *_cases(
        "two_classes",
        ensemble.AdaBoostClassifier(n_estimators=5, **SEED),
        calibration.CalibratedClassifierCV(_small_tree(), method="isotonic", cv=2),
        gaussian_process.GaussianProcessClassifier(),
        ensemble.GradientBoostingClassifier(n_estimators=5, **SEED),
        neighbors.KNeighborsClassifier(3),
        svm.LinearSVC(),
        _logistic(),
        neural_network.MLPClassifier((6,), max_iter=500, **SEED),
        ensemble.RandomForestClassifier(5, max_depth=4, **SEED),
        linear_model.SGDClassifier(loss="log_loss", **SEED),
        linear_model.SGDClassifier(loss="modified_huber", **SEED),
        svm.SVC(kernel="poly"),
        svm.SVC(kernel="sigmoid", gamma=0.1),
        svm.SVC(kernel="linear", probability=True, **SEED),
        model_selection.TunedThresholdClassifierCV(_logistic(), cv=2),
    ),
    Case(calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=2), "classes", "svc"),
    *_cases("scattered", neighbors.KNeighborsClassifier()),
    Case(neighbors.KNeighborsClassifier(), "scattered", "cdist", {"optim": "cdist"}),
    Case(neighbors.KNeighborsClassifier(weights="distance"), "scattered", "distance", ours=True),
    Case(neighbors.KNeighborsClassifier(), "two_questions", ours=True),
    Case(neighbors.RadiusNeighborsClassifier(radius=0.6, outlier_label=0), "scattered", ours=True),
    Case(neighbors.KNeighborsClassifier(metric="cityblock"), "scattered", "cityblock"),
    Case(svm.SVC(), "classes", "raw", RAW),
    Case(svm.SVC(probability=True, **SEED), "six_classes"),
    Case(_logistic(), "two_classes", "raw", RAW),
    *_cases("two_questions", multioutput.MultiOutputClassifier(_logistic())),
    *_cases("two_questions", tree.DecisionTreeClassifier(max_depth=3, **SEED)),
    *_cases("counts", naive_bayes.MultinomialNB(), naive_bayes.ComplementNB(), _small_tree()),
    *_cases("flags", naive_bayes.BernoulliNB()),
    *_cases("categories", naive_bayes.CategoricalNB()),
    *(
        Case(ensemble.HistGradientBoostingClassifier(max_iter=5), data, ours=True)
        for data in ("classes", "two_classes", "gaps")
    ),
]

REGRESSORS = [
    *_cases(
        "numbers",
        linear_model.ARDRegression(),
        ensemble.AdaBoostRegressor(_small_regressor(), n_estimators=5, **SEED),
        ensemble.BaggingRegressor(n_estimators=3, max_samples=0.3, **SEED),
        linear_model.BayesianRidge(),
        CastRegressor(_small_regressor()),
        tree.DecisionTreeRegressor(max_depth=4, **SEED),
        linear_model.ElasticNet(alpha=0.01),
        linear_model.ElasticNetCV(cv=2, alphas=5),
        tree.ExtraTreeRegressor(max_depth=4, **SEED),
        ensemble.ExtraTreesRegressor(5, max_depth=4, **SEED),
        gaussian_process.GaussianProcessRegressor(
            KERNELS.ConstantKernel(1.0) * KERNELS.RBF(0.1), alpha=1.0, optimizer=None
        ),
        ensemble.GradientBoostingRegressor(n_estimators=5, **SEED),
        linear_model.HuberRegressor(max_iter=2000),
        neighbors.KNeighborsRegressor(),
        linear_model.Lars(),
        linear_model.LarsCV(cv=2),
        linear_model.Lasso(alpha=0.1),
        linear_model.LassoCV(cv=2, alphas=5),
        linear_model.LassoLars(alpha=0.1),
        linear_model.LassoLarsCV(cv=2),
        linear_model.LassoLarsIC(),
        linear_model.LinearRegression(),
        svm.LinearSVR(C=100, max_iter=20_000),
        neural_network.MLPRegressor(hidden_layer_sizes=(6,), max_iter=2000, **SEED),
        svm.NuSVR(C=100),
        linear_model.OrthogonalMatchingPursuit(),
        linear_model.OrthogonalMatchingPursuitCV(cv=2),
        linear_model.PassiveAggressiveRegressor(**SEED),
        linear_model.QuantileRegressor(),
        linear_model.RANSACRegressor(**SEED),
        ensemble.RandomForestRegressor(5, max_depth=4, **SEED),
        linear_model.Ridge(),
        linear_model.RidgeCV(),
        linear_model.SGDRegressor(**SEED),
        ensemble.StackingRegressor([("a", linear_model.Ridge()), ("b", _small_regressor())], cv=2),
        svm.SVR(C=100),
        svm.SVR(kernel="linear", C=100),
        linear_model.TheilSenRegressor(max_iter=20, **SEED),
        ensemble.VotingRegressor([("a", linear_model.Ridge()), ("b", _small_regressor())]),
    ),
    *_cases(
        "positive",
        linear_model.GammaRegressor(),
        linear_model.PoissonRegressor(),
        linear_model.TweedieRegressor(power=1.5),
    ),
    *_cases(
        "two_numbers",
        neighbors.KNeighborsRegressor(2),
        linear_model.LinearRegression(),
        linear_model.MultiTaskElasticNet(alpha=0.01),
        linear_model.MultiTaskElasticNetCV(cv=2, alphas=5),
        linear_model.MultiTaskLasso(alpha=0.1),
        linear_model.MultiTaskLassoCV(cv=2, alphas=5),
        multioutput.MultiOutputRegressor(linear_model.Ridge()),
        cross_decomposition.PLSRegression(2),
        ensemble.RandomForestRegressor(5, max_depth=4, **SEED),
    ),
    *_cases(
        "numbers",
        ensemble.HistGradientBoostingRegressor(max_iter=5),
        neighbors.RadiusNeighborsRegressor(radius=0.3),
        ours=True,
    ),
    Case(neighbors.KNeighborsRegressor(weights="distance"), "new_numbers", "distance", ours=True),
    *_cases(
        "positive",
        ensemble.HistGradientBoostingRegressor(loss="poisson", max_iter=5),
        ours=True,
    ),
]

OTHERS = [
    *_cases(
        "scattered",
        neighbors.KNeighborsTransformer(n_neighbors=3),
        neighbors.LocalOutlierFactor(n_neighbors=3, novelty=True),
        neighbors.NearestNeighbors(n_neighbors=3, radius=None),
    ),
    *_cases(
        "classes",
        mixture.BayesianGaussianMixture(n_components=2, **SEED),
        mixture.GaussianMixture(n_components=3, **SEED),
        ensemble.IsolationForest(n_estimators=5, max_samples=32, **SEED),
        cluster.KMeans(3, n_init=2, **SEED),
        cluster.MiniBatchKMeans(3, n_init=2, **SEED),
        svm.OneClassSVM(nu=0.2),
        linear_model.SGDOneClassSVM(**SEED),
    ),
]

TRANSFORMERS = [
    *_cases(
        "classes",
        preprocessing.Binarizer(threshold=3.0),
        CastTransformer(),
        compose.ColumnTransformer(
            [("a", preprocessing.StandardScaler(), [0, 2]), ("b", "passthrough", [1])]
        ),
        pipeline.FeatureUnion([("a", decomposition.PCA(2)), ("b", preprocessing.MinMaxScaler())]),
        preprocessing.FunctionTransformer(),
        random_projection.GaussianRandomProjection(2, **SEED),
        feature_selection.GenericUnivariateSelect(),
        decomposition.IncrementalPCA(2),
        preprocessing.KBinsDiscretizer(3, encode="ordinal", quantile_method="linear"),
        preprocessing.KBinsDiscretizer(3, encode="onehot-dense", quantile_method="linear"),
        decomposition.KernelPCA(2, kernel="rbf"),
        preprocessing.MaxAbsScaler(),
        preprocessing.MinMaxScaler(),
        neighbors.NeighborhoodComponentsAnalysis(2, **SEED),
        preprocessing.Normalizer(),
        decomposition.PCA(2),
        preprocessing.PolynomialFeatures(),
        preprocessing.PowerTransformer(),
        ensemble.RandomTreesEmbedding(3, max_depth=3, sparse_output=False, **SEED),
        feature_selection.RFE(_logistic(), n_features_to_select=2),
        feature_selection.RFECV(_logistic(), cv=2),
        preprocessing.RobustScaler(),
        feature_selection.SelectFdr(),
        feature_selection.SelectFpr(),
        feature_selection.SelectFromModel(_logistic()),
        feature_selection.SelectFwe(),
        feature_selection.SelectKBest(k=2),
        feature_selection.SelectPercentile(percentile=50),
        preprocessing.StandardScaler(),
        decomposition.TruncatedSVD(2),
        feature_selection.VarianceThreshold(0.3),
        pipeline.make_pipeline(preprocessing.StandardScaler(), _logistic()),
    ),
    *_cases("classes", preprocessing.QuantileTransformer(n_quantiles=20), ours=True),
    *_cases("squares", preprocessing.KernelCenterer()),
    *_cases("flags", ReplaceTransformer(from_value=1.0, to_value=5.0)),
    *_cases(
        "counts",
        text.TfidfTransformer(),
        WOETransformer(intervals=[[(0.5, 5.5, True, True), (5.5, 99.0)]] * 4),
    ),
    *_cases("gaps", impute.SimpleImputer()),
    *_cases("scattered_gaps", impute.KNNImputer(n_neighbors=2), ours=True),
    *_cases("labels", preprocessing.LabelBinarizer(), preprocessing.LabelEncoder()),
    *_cases(
        "categories",
        preprocessing.OneHotEncoder(),
        preprocessing.OrdinalEncoder(),
        preprocessing.TargetEncoder(target_type="continuous"),
    ),
    *_cases(
        "texts",
        preprocessing.OneHotEncoder(),
        preprocessing.OrdinalEncoder(),
        preprocessing.TargetEncoder(target_type="continuous"),
        pipeline.make_pipeline(preprocessing.OneHotEncoder(), _logistic()),
    ),
]

register.register_woe()  # skl2onnx leaves it to who needs it
CASES = (*CLASSIFIERS, *REGRESSORS, *OTHERS, *TRANSFORMERS)


def _numbered(cases: Iterable[Case]) -> dict[str, Case]:
    """By name; the second of a name ends in 2."""
    found: dict[str, Case] = {}
    for case in cases:
        count, name = 1, str(case)
        while name in found:
            count += 1
            name = f"{case}-{count}"
        found[name] = case
    return found


BY_NAME: Mapping[str, Case] = _numbered(CASES)
