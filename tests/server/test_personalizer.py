import pytest
from serving import Local

personalizer = pytest.importorskip("azure.cognitiveservices.personalizer")
msrest = pytest.importorskip("msrest")
LOOP = """\
[loops.news]
exploration_floor = 0.2
[loops.news.context]
"time.hour" = { kind = "Numeric", range = [0, 24] }
device = { kind = "Categorical" }
[loops.news.arms]
names = []
[loops.news.arms.columns]
topic = { kind = "Categorical" }
length = { kind = "Numeric", range = [0, 10] }
"""


@pytest.fixture(params=["", "/news"], ids=["one loop", "by name"])
def client(request, tmp_path):
    from msrest.authentication import CognitiveServicesCredentials

    server = Local(tmp_path / "events.db", LOOP)
    client = personalizer.PersonalizerClient(server.address + request.param, CognitiveServicesCredentials("a key"))
    client.server = server
    yield client
    client.close()
    server.stop()


def rank_request(**options):
    return personalizer.models.RankRequest(
        context_features=[{"time": {"hour": 9}}, {"device": "phone"}],
        actions=[
            personalizer.models.RankableAction(id="a", features=[{"topic": "sport"}, {"length": 3}]),
            personalizer.models.RankableAction(id="b", features=[{"topic": "arts", "length": 5}]),
            personalizer.models.RankableAction(id="c", features=[{"topic": "arts", "length": 6}]),
        ],
        **options,
    )


@pytest.mark.filterwarnings("default")
def test_the_published_client_ranks_rewards_and_activates(client):
    counts = lambda: client.server("GET", "/v1/loops/news")[1]["counts"]  # noqa: E731
    result = client.rank(rank_request(event_id="e1", excluded_actions=["c"]))
    assert result.event_id == "e1"
    assert sorted(action.id for action in result.ranking) == ["a", "b", "c"]
    assert result.ranking[0].id == result.reward_action_id != "c"
    assert 0 < result.ranking[0].probability <= 1
    assert client.rank(rank_request(event_id="e1", excluded_actions=["c"])).reward_action_id == result.reward_action_id
    client.events.reward("e1", 1.0)
    client.events.reward("e1", 1.0)
    assert counts()["rewards"] == 1
    deferred = client.rank(rank_request(defer_activation=True))
    client.events.reward(deferred.event_id, 0.5)
    assert counts()["rewards"] == 1
    client.events.activate(deferred.event_id)
    assert counts()["rewards"] == 2
    with pytest.raises(msrest.exceptions.HttpOperationError, match="Not Found"):
        client.events.reward("never", 1.0)


def test_the_configuration_is_that_of_the_loop(client):
    status, found = client.server("GET", "/personalizer/v1.0/configurations/service")
    assert (status, found["explorationPercentage"], found["rewardWaitTime"]) == (200, 0.2, "PT3600S")
