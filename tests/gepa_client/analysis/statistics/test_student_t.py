import pytest

from gepa_client.analysis.statistics import student_t


@pytest.mark.parametrize(
    ("freedom", "below", "above", "quantile"),
    [
        (1, 0.20871440016015272, 0.8524163823495667, 12.706204736174694),
        (2, 0.16162351590802015, 0.908248290463863, 4.302652729749462),
        (30, 0.10175047926905843, 0.9726874775185085, 2.0422724563012378),
        (301, 0.09729778739488226, 0.9768007389156675, 1.9678765312856952),
    ],
)
def test_probabilities_and_quantiles_are_those_of_scipy(freedom, below, above, quantile):
    assert student_t.cdf(-1.3, freedom) == pytest.approx(below, abs=1e-12)
    assert student_t.cdf(2.0, freedom) == pytest.approx(above, abs=1e-12)
    assert student_t.quantile(0.975, freedom) == pytest.approx(quantile, rel=1e-8)
